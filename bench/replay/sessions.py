"""Ten sessions of an agent that works on this repository, made from its own files.

A seed makes each of them: it reads, searches and edits real files, and its answers quote them. The
sessions have system prompts of about 1,500 to 8,000 tokens, 10 to 40 answers, results of 50 to
4,000 tokens, and calls written as JSON. Sizes are in characters; a token has about four.
"""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_RESULT = 16_000
_WORD = re.compile(r"[a-z]{4,}")
_NAME = re.compile(r"^(?:class|(?:async )?def) (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of the user or a result of a tool, and the agent's answer to it."""

    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a session: its system prompt, its answers, the largest result."""

    name: str
    folder: str
    system: int
    answers: int
    result: int


PLANS = (
    Plan("read one room", "shepherd/tools", 6_000, 10, 6_000),
    Plan("fix a command", "shepherd/cli/commands", 8_000, 14, 4_000),
    Plan("rename a setting", "shepherd/config", 12_000, 20, 4_000),
    Plan("add a field", "shepherd/server/wire", 12_000, 16, 6_000),
    Plan("find a leak", "shepherd/backends", 16_000, 24, 8_000),
    Plan("write a page", "docs", 24_000, 12, MAX_RESULT),
    Plan("split a module", "shepherd/conversation", 32_000, 18, 8_000),
    Plan("answer questions", "shepherd/undo", 6_000, 40, 1_200),
    Plan("review a room", "shepherd/mcp", 20_000, 22, 6_000),
    Plan("many small edits", "shepherd/knowledge", 10_000, 32, 2_400),
)


@dataclass(frozen=True, slots=True)
class Session:
    """A system prompt and the turns behind it."""

    name: str
    system: str
    turns: list[Turn]


@dataclass
class _Author:
    """Writes the turns of one session."""

    plan: Plan
    chance: random.Random
    files: list[Path]
    turns: list[Turn] = field(default_factory=list[Turn])
    _user: str = ""

    def write(self) -> list[Turn]:
        """The session's turns: task after task, until there are enough answers."""
        while len(self.turns) < self.plan.answers:
            path = self.chance.choice(self.files)
            self._user = self._question(path)
            for call, result in self._work(path):
                self._answer(json.dumps(call, ensure_ascii=False), result[: self.plan.result])
            self._answer(self._summary(path), "")
        return self.turns[: self.plan.answers]

    def _answer(self, text: str, following: str) -> None:
        self.turns.append(Turn(self._user, text))
        self._user = f"<tool_response>\n{following}\n</tool_response>"

    def _question(self, path: Path) -> str:
        return (
            f"Look at {_place(path)}: what does it do, and what would you make simpler? Change one "
            "small thing there, run its tests, and tell me what you did."
        )

    def _work(self, path: Path) -> Iterator[tuple[dict[str, object], str]]:
        text = path.read_text()
        names = _NAME.findall(text) or [path.stem]
        name = self.chance.choice(names)
        yield _call("grep", pattern=name, path=self.plan.folder), _found(name, self.files)
        yield _call("read_file", path=_place(path)), text
        old, new = self._edit(text)
        yield _call("edit_file", path=_place(path), old=old, new=new), f"-{old}\n+{new}"
        if self.chance.random() < 0.4:
            other = self.chance.choice(self.files)
            yield _call("read_file", path=_place(other), limit=80), other.read_text()
        command = f"pytest -q tests -k {path.stem}"
        yield _call("run_command", command=command), _tests(path, self.chance.randint(4, 60))

    def _edit(self, text: str) -> tuple[str, str]:
        """A block of lines, and the same block with one word changed."""
        blocks = [block[:1600] for block in text.split("\n\n") if _WORD.search(block[:1600])]
        old = self.chance.choice(blocks)
        word = self.chance.choice(_WORD.findall(old))
        return old, old.replace(word, f"{word}_value")

    def _summary(self, path: Path) -> str:
        sentences = re.findall(r'"""([A-Z][^"\n]{20,160})', path.read_text())[:6]
        quoted = "\n".join(f"- {sentence}" for sentence in sentences)
        return f"I changed one thing in `{_place(path)}`, and its tests pass. The file:\n{quoted}"


def sessions() -> list[Session]:
    """The ten sessions; the same tree gives the same ones."""
    return [_session(number, plan) for number, plan in enumerate(PLANS)]


def _session(number: int, plan: Plan) -> Session:
    paths = (ROOT / plan.folder).rglob("*.*")
    files = sorted(p for p in paths if p.suffix in (".py", ".md") and p.stat().st_size > 1000)
    pages = sorted((ROOT / "docs").glob("*.md"))
    chance = random.Random(number)
    chance.shuffle(pages)
    rules = "\n\n".join(page.read_text() for page in pages)
    return Session(plan.name, rules[: plan.system], _Author(plan, chance, files).write())


def _call(name: str, **arguments: object) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def _found(name: str, files: list[Path]) -> str:
    lines = (
        f"{_place(path)}:{number}:{line}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if name in line
    )
    return "\n".join(lines)


def _tests(path: Path, count: int) -> str:
    lines = [f"tests/test_{path.stem}.py::test_{number} PASSED" for number in range(count)]
    return "\n".join([*lines, f"{count} passed"])


def _place(path: Path) -> str:
    return str(path.relative_to(ROOT))
