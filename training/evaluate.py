"""Scores a GGUF on held-out dialogues, greedy, through llama.cpp; prints Markdown tables.

`python -m training.evaluate [--model GGUF] [--dialogues N] [--first N] [--misses FILE]`; needs
llama-cpp-python and Jinja2, not torch. Histories are teacher-forced: each reply is asked for after
the right ones.
"""

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import llama_cpp
from msgspec.structs import replace

from training import asked, lists
from training.answers import BEYOND, MORE, NO_TOOL, SHOWN_LINES, report
from training.chat import Template
from training.dialogue import Call, Message
from training.dialogues import SYSTEM, Dialogue, dialogue, rule
from training.toolbox import OWN
from training.words import Words

MODEL = Path(__file__).parent.parent / "shepherd" / "models" / "pup.gguf"
FIRST_SEED = 700_000_000
LONGEST_REPLY = 1200
# Of ten dialogues: their lengths in tokens.
SIZES = (400, 500, 500, 500, 600, 600, 600, 900, 1200, 4000)
DEPTHS = (500, 1000, 2000, 3000, 4096, 8192)


class Engine:
    """Greedy replies from a GGUF; the part of the prompt already in memory is not read again."""

    def __init__(self, path: Path, threads: int, context: int = 8192) -> None:
        self.llm: Any = llama_cpp.Llama(
            str(path), n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.template = Template(self.llm.metadata["tokenizer.chat_template"])

    def measure(self, text: str) -> int:
        """The number of tokens in `text`."""
        return len(self.tokens(text))

    def tokens(self, text: str) -> list[int]:
        """The tokens of `text`, special ones parsed."""
        return self.llm.tokenize(text.encode(), add_bos=False, special=True)

    def reply(self, prompt: list[int]) -> str:
        """The greedy reply to `prompt`."""
        out: list[int] = []
        for token in self.llm.generate(prompt, temp=0.0, repeat_penalty=1.0):
            if token == self.llm.token_eos() or len(out) == LONGEST_REPLY:
                break
            out.append(token)
        return self.llm.detokenize(out, special=True).decode(errors="replace")


@dataclass(frozen=True)
class Score:
    """One reply: how deep it stood and what came out."""

    label: str
    depth: int
    exact: bool
    good: bool  # exact, or different words that are as true
    thought: bool


def replies(engine: Engine, made: Dialogue) -> Iterator[tuple[Message, list[Message], int, str]]:
    """Each of Pup's replies in the dialogue: expected, what came before, its depth, what came."""
    for i, message in enumerate(made.messages):
        if message.role != "assistant":
            continue
        before = made.messages[:i]
        prompt = engine.template.render(
            made.system, made.tools, before, think=message.thought is not None
        )
        tokens = engine.tokens(prompt)
        yield message, before, len(tokens), engine.reply(tokens)


def judge(expected: Message, got: str) -> tuple[bool, bool]:
    """Whether the reply is exactly the expected one, and whether it is as good."""
    if expected.thought is not None:
        thought, mark, got = got.partition("\n</think>\n\n")
        if not mark or not thought:
            return False, False
    if expected.call:
        right = asked.is_call(expected.call, got)
        return right, right
    if got == expected.content:
        return True, True
    if expected.label in ("beyond", "no tool"):
        return False, got in (BEYOND, NO_TOOL)
    return False, _cut_elsewhere(expected.content, got)


def _cut_elsewhere(expected: str, got: str) -> bool:
    """Whether a long result was cut honestly, but a few lines before or after the rule's line."""
    if not expected.endswith(MORE) or not got.endswith(MORE):
        return False
    right, lines = expected.split("\n")[:-1], got.split("\n")[:-1]
    common = min(len(right), len(lines))
    return len(lines) >= SHOWN_LINES - 2 and right[:common] == lines[:common]


GROUPS = (
    ("tool call", lambda s: s.label.startswith("call") and "client" not in s.label),
    ("answer after a result", lambda s: s.label.startswith("answer") and "client" not in s.label),
    ("beyond Pup: honest", lambda s: s.label == "beyond"),
    ("tool not offered: honest", lambda s: s.label == "no tool"),
    ("small talk, help, which file", lambda s: s.label in ("small talk", "which file", "where")),
    ("facts told in the conversation", lambda s: s.label in ("told", "remembered", "never told")),
    ("unseen tools of clients: call", lambda s: s.label == "call client tool"),
    ("unseen tools of clients: answer", lambda s: s.label.startswith("answer client")),
    ("with a thought (all kinds)", lambda s: s.thought),
)


def _row(name: str, scores: list[Score]) -> str:
    count = len(scores)
    if not count:
        return f"| {name} | 0 | – | – |"
    exact, good = sum(s.exact for s in scores), sum(s.good for s in scores)
    return f"| {name} | {count} | {exact / count:.1%} | {good / count:.1%} |"


def tables(scores: list[Score]) -> str:
    """The results as Markdown: by kind, by label, by depth."""
    head = ["| {} | replies | exact | good |", "|---|---|---|---|"]
    lines = [head[0].format("kind"), head[1]]
    lines += [_row(name, [s for s in scores if chosen(s)]) for name, chosen in GROUPS]
    lines += ["", head[0].format("behaviour"), head[1]]
    by_label: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        by_label[score.label].append(score)
    lines += [_row(label, by_label[label]) for label in sorted(by_label)]
    for title, chosen in (("calls", "call"), ("answers", "answer"), ("all replies", "")):
        lines += ["", head[0].format(f"{title} by depth in tokens"), head[1]]
        for low, high in pairwise((0, *DEPTHS)):
            inside = [s for s in scores if low <= s.depth < high and s.label.startswith(chosen)]
            if inside:
                lines.append(_row(f"{low}–{high}", inside))
    return "\n".join(lines)


def _miss(expected: Message, last: Message, depth: int, got: str) -> str:
    return (
        f"## {expected.label} at {depth}\n{last.content[:600]}\n"
        f"--- expected\n{expected.body()[:900]}\n--- got\n{got[:900]}\n"
    )


def behind(engine: Engine, made: Dialogue, tokens: int, seed: int) -> Dialogue:
    """The dialogue under a system message that is longer by so many tokens of rules."""
    words = Words(random.Random(seed), held=True)
    parts, more = [made.system] if made.system else [], 0
    while more < tokens:
        parts.append(rule(words))
        more += engine.measure(parts[-1]) + 1
    return replace(made, system="\n".join(parts))


def held_out(
    engine: Engine, numbers: range, sizes: tuple[int, ...], deeper: int = 0
) -> Iterator[Dialogue]:
    """The dialogues with these numbers, of held-out words, phrasings and tools.

    `deeper`: tokens of further rules in each system message.
    """
    for i in numbers:
        made = dialogue(FIRST_SEED + i, engine.measure, sizes[i % len(sizes)], held=True)
        yield behind(engine, made, deeper, i) if deeper else made


def probes(engine: Engine) -> list[tuple[str, str, str, bool]]:
    """The requests written by hand: request, what was wanted, what came, whether it is right."""
    system = SYSTEM.replace("{folder}", "/home/ada/project")
    found: list[tuple[str, str, str, bool]] = []
    for line in lists.sections("probes")["requests"]:
        request, wanted = line.split(" => ", 1)
        message = Message("user", request)
        got = engine.reply(engine.tokens(engine.template.render(system, list(OWN), [message])))
        found.append((request, wanted, got, asked.as_wanted(wanted, got)))
    return found


def files() -> Iterator[tuple[str, str]]:
    """The files written by hand, as people have them: name and text. None is in the training."""
    text = (lists.FOLDER / "files.txt").read_text()
    for part in text.removeprefix("== ").split("\n== "):
        name, _, content = part.partition("\n")
        yield name, content.rstrip("\n")


def restated(engine: Engine) -> list[tuple[str, str, str]]:
    """Each of these files is read on request: name, the right answer, what came."""
    system = SYSTEM.replace("{folder}", "/home/ada/project")
    read = next(tool for tool in OWN if tool.name == "read_file")
    found: list[tuple[str, str, str]] = []
    for name, content in files():
        call = Call(read.name, {"path": name})
        said = [Message("user", f"read {name}"), Message("assistant", call=call),
                Message("tool", content)]  # fmt: skip
        for before, wanted in ((said[:1], call.text()),
                               (said, report(read.name, call.args, content))):  # fmt: skip
            prompt = engine.template.render(system, list(OWN), before)
            found.append((name, wanted, engine.reply(engine.tokens(prompt))))
    return found


def _print_probes(engine: Engine) -> None:
    found = probes(engine)
    right = sum(good for *_, good in found)
    print(f"\nHand-written requests, REPL's tools: {right} of {len(found)} right. Wrong:\n")
    for request, wanted, got, good in found:
        if not good:
            print(f"- {request} → wanted `{wanted}`, got `{got[:120]!r}`")


def _print_files(engine: Engine) -> None:
    found = restated(engine)
    calls, answers = found[::2], found[1::2]
    right = [sum(wanted == got for _, wanted, got in part) for part in (calls, answers)]
    print(f"\nFiles written by hand: {right[0]} of {len(calls)} read when asked for, "
          f"{right[1]} of {len(answers)} restated without a mistake. Wrong:\n")  # fmt: skip
    for name, wanted, got in found:
        if wanted != got:
            print(f"- {name}: wanted `{wanted!r}`, got `{got[:400]!r}`")


def _print_asked(engine: Engine) -> None:
    system = SYSTEM.replace("{folder}", "/home/ada/project")

    def reply(messages: list[Message]) -> str:
        return engine.reply(engine.tokens(engine.template.render(system, list(OWN), messages)))

    for name, ask in (
        ("Requests in people's own words", asked.requests),
        ("Calls in conversations in people's own words", asked.conversations),
    ):
        print(asked.table(name, list(ask(reply))))


def main() -> None:
    """Reads the arguments, evaluates, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--dialogues", type=int, default=520)
    parser.add_argument("--first", type=int, default=0, help="the first dialogue's number: models "
                        "are chosen by dialogues from 100,000 on")  # fmt: skip
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--behind", type=int, default=0, help="tokens of further rules in each "
                        "system message: the same requests, deeper")  # fmt: skip
    parser.add_argument("--misses", type=Path, help="write the replies that were not good here")
    args = parser.parse_args()
    sizes = tuple(int(size) for size in args.sizes.split(","))
    numbers = range(args.first, args.first + args.dialogues)
    engine = Engine(args.model, args.threads)
    scores: list[Score] = []
    misses: list[str] = []
    start = time.monotonic()
    for made in held_out(engine, numbers, sizes, args.behind):
        for expected, before, depth, got in replies(engine, made):
            exact, good = judge(expected, got)
            thought = expected.thought is not None
            scores.append(Score(expected.label, depth, exact, good, thought))
            if not good:
                misses.append(_miss(expected, before[-1], depth, got))
    print(f"{args.dialogues} dialogues, {len(scores)} replies, greedy, llama.cpp, "
          f"{time.monotonic() - start:.0f} s\n")  # fmt: skip
    print(tables(scores))
    _print_probes(engine)
    _print_files(engine)
    _print_asked(engine)
    if args.misses:
        args.misses.write_text("\n".join(misses))


if __name__ == "__main__":
    main()
