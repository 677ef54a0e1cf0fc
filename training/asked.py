"""What people ask in their own words, written by somebody who did not know the training.

`lists/asked.txt` has requests, `lists/asked_on.txt` conversations. Of each, the failures of one
half have been looked at while the data was made; the other half has only ever been counted.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from training import lists
from training.answers import BEYOND, CANNED, NO_TOOL, report
from training.dialogue import Call, Message

Reply = Callable[[list[Message]], str]
BEGINS, ENDS = "<tool_call>\n", "\n</tool_call>"


@dataclass(frozen=True)
class Asked:
    """One reply: what was said before it, what would be right, what came."""

    said: str
    wanted: str
    got: str
    right: bool
    seen: bool  # whether it belongs to the half that has been looked at


@dataclass
class _Conversation:
    """What has been said; the results of this turn's calls, as Pup will restate them."""

    messages: list[Message] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    call: Call | None = None

    def user(self, text: str) -> None:
        if self.told:
            self.messages.append(Message("assistant", "\n\n".join(self.told)))
            self.told = []
        self.messages.append(Message("user", text))

    def pup(self, wanted: str, got: str) -> None:
        """What Pup should have said stands in the history from here on."""
        first = wanted.split(" || ")[0]
        self.call = call_of(first)
        said = BEYOND if first == "beyond" else got
        self.messages.append(Message("assistant", "" if self.call else said, self.call))

    def result(self, text: str) -> None:
        if self.call:
            text = text.replace("\\n", "\n")
            self.messages.append(Message("tool", text))
            self.told.append(report(self.call.name, self.call.args, text))


def call_of(wanted: str) -> Call | None:
    """The call that would be right; None for what needs none."""
    if wanted in ("beyond", "talk"):
        return None
    name, args = wanted.split(" ", 1)
    return Call(name, json.loads(args))


def as_wanted(wanted: str, got: str) -> bool:
    """Whether the reply is one of those wanted, which ` || ` separates."""
    return any(_is(each.strip(), got) for each in wanted.split(" || "))


def _is(wanted: str, got: str) -> bool:
    call = call_of(wanted)
    if call is None:
        return got in ((BEYOND, NO_TOOL) if wanted == "beyond" else CANNED)
    return is_call(call, got)


def is_call(call: Call, got: str) -> bool:
    """Whether the reply is this call and nothing else."""
    try:
        made = json.loads(got.removeprefix(BEGINS).removesuffix(ENDS))
    except json.JSONDecodeError:
        return False
    return made == {"name": call.name, "arguments": call.args}


def was_seen(text: str) -> bool:
    """Whether this belongs to the half whose failures have been looked at."""
    return bool(zlib.crc32(text.encode()) % 2)


def requests(reply: Reply) -> Iterator[Asked]:
    """Each request alone."""
    for line in lists.sections("asked")["requests"]:
        said, wanted = line.split(" => ", 1)
        got = reply([Message("user", said)])
        yield Asked(said, wanted, got, as_wanted(wanted, got), was_seen(said))


def conversations(reply: Reply) -> Iterator[Asked]:
    """Each call of the conversations; the right ones stand before it."""
    for block in (lists.FOLDER / "asked_on.txt").read_text().strip().split("\n\n"):
        talk = _Conversation()
        for line in block.splitlines():
            kind, _, text = line.partition(": ")
            if kind == "USER":
                talk.user(text)
            elif kind == "CALL":
                got = reply(talk.messages)
                said = talk.messages[-1].content
                yield Asked(said, text, got, as_wanted(text, got), was_seen(block))
                talk.pup(text, got)
            else:
                talk.result(text)


def table(name: str, asked: list[Asked]) -> str:
    """A sentence with the shares, and the failures of the half that has been looked at."""
    halves = {seen: [each for each in asked if each.seen is seen] for seen in (False, True)}
    counts = {seen: f"{sum(e.right for e in half)} of {len(half)}" for seen, half in halves.items()}
    head = (f"\n{name}: {counts[False]} right of those that were only counted, {counts[True]} of "
            "those that were looked at. Wrong of the latter:\n")  # fmt: skip
    lines = [f"- {e.said[:120]!r} → wanted `{e.wanted}`, got `{e.got[:160]!r}`"
              for e in halves[True] if not e.right]  # fmt: skip
    return "\n".join([head, *lines])
