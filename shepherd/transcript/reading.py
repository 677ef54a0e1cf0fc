"""Reads the lines of sessions, including damaged ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from shepherd.errors import SessionError
from shepherd.messages import INTERRUPTED, Message, Role
from shepherd.session import Branch
from shepherd.transcript.records import (
    PARSE_ERRORS,
    VERSION,
    Branched,
    Change,
    Cleared,
    Compacted,
    Header,
    MessageAdded,
    MessagesEvicted,
    SettingChanged,
    parse_change,
    parse_header,
)


def repaired(numbered: Iterable[tuple[int, Message]]) -> list[tuple[int | None, Message]]:
    """The messages with a result after each call; an added result has the number None.

    Results without a call are removed.
    """
    whole: list[tuple[int | None, Message]] = []
    waiting: dict[str, Message] = {}
    for number, message in numbered:
        if message.role is Role.TOOL:
            if waiting.pop(message.tool_call_id, None) is not None:
                whole.append((number, message))
            continue
        whole += [(None, result) for result in waiting.values()]
        waiting = {c.id: Message.tool(c, INTERRUPTED) for c in message.tool_calls}
        whole.append((number, message))
    return whole + [(None, result) for result in waiting.values()]


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A conversation as read from its lines.

    `numbers` and `times` run parallel to `messages`; None marks a result that was added for a call
    without one. `sound_bytes` is the length of the lines without an incomplete last one;
    `complete` says whether they end in a newline. `warnings` has a sentence per damaged line.
    """

    header: Header
    system_message: str
    model: str
    messages: tuple[Message, ...]
    numbers: tuple[int | None, ...]
    times: tuple[datetime | None, ...]
    next_number: int
    branches: tuple[Branch, ...]
    sound_bytes: int
    complete: bool
    warnings: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.header.id


class _Replay:
    """The changes of a session, applied one after another."""

    def __init__(self, header: Header) -> None:
        self.live: dict[int, Message] = {}
        self.all: dict[int, Message] = {}
        self.branches: list[Branch] = []
        self.times: dict[int | None, datetime | None] = {}
        self.settings = {"system_message": header.system_message, "model": header.model}
        self.next_number = 0

    def apply(self, change: Change) -> None:
        match change:
            case MessageAdded(number, message, time):
                self._add(number, message, time)
                self.live[number] = message
            case MessagesEvicted(numbers):
                for number in numbers:
                    self.live.pop(number, None)
            case Cleared():
                self.live.clear()
            case SettingChanged(name, value):
                self.settings[name] = value
            case Branched(number, messages, resumed):
                self.branches = [b for b in self.branches if b.end != resumed]
                self.branches.append(self.branch(number))
                self.live = {n: self.all[n] for n in messages if n in self.all}
                self.next_number = max(self.next_number, number + 1)
            case Compacted(number, replaced, message, time):
                self._add(number, message, time)
                self._replace(replaced, number)

    def branch(self, end: int) -> Branch:
        """The present messages; each call has a result."""
        kept = repaired(self.live.items())
        numbers, messages = tuple(n for n, _ in kept), tuple(m for _, m in kept)
        return Branch(end, numbers, messages, tuple(self.times.get(n) for n in numbers))

    def _add(self, number: int, message: Message, time: datetime | None) -> None:
        self.all[number] = message
        self.times[number] = time
        self.next_number = max(self.next_number, number + 1)

    def _replace(self, replaced: Sequence[int], number: int) -> None:
        """Put one message in the place of the first of those that it stands for."""
        numbers = list(self.live)
        first = next((i for i, n in enumerate(numbers) if n in replaced), 0)
        numbers.insert(first, number)
        self.live = {n: self.all[n] for n in numbers if n not in replaced}


def parse_session(name: str, data: bytes) -> SavedSession:
    """The conversation in `data`, the lines of a session; `name` names it in messages.

    Raises SessionError if there is no header.
    """
    *lines, tail = data.split(b"\n")
    header = parse_first_line(name, lines[0] if lines else tail)
    replay = _Replay(header)
    warnings: list[str] = []
    for number, line in enumerate(lines[1:], start=2):
        change = _change(line)
        if change is not None:
            replay.apply(change)
        elif line.strip():
            warnings.append(f"{name}:{number}: damaged line skipped")
    whole_tail = bool(lines) and _change(tail) is not None
    if whole_tail:
        replay.apply(parse_change(tail))
    present = replay.branch(replay.next_number)
    return SavedSession(
        header=header,
        system_message=replay.settings["system_message"],
        model=replay.settings["model"],
        messages=present.messages,
        numbers=present.numbers,
        times=present.times,
        next_number=replay.next_number,
        branches=tuple(replay.branches),
        sound_bytes=len(data) if whole_tail or not lines else len(data) - len(tail),
        complete=bool(lines) and not whole_tail,
        warnings=tuple(warnings),
    )


def parse_first_line(name: str, line: bytes) -> Header:
    """The header in the first line of a session; raises SessionError."""
    try:
        header = parse_header(line)
    except PARSE_ERRORS as error:
        raise SessionError(f"{name}:1: not a session of Shepherd: {error}") from error
    if header.version > VERSION:
        raise SessionError(f"{name}: written by a newer Shepherd (format {header.version})")
    return header


def _change(line: bytes) -> Change | None:
    try:
        return parse_change(line)
    except PARSE_ERRORS:
        return None
