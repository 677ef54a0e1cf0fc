"""The lines of a session, and the conversation that they make.

The first line is the header; every other line is one change. Messages are numbered from 0 for the
life of the session. Evictions name those numbers, so that a damaged line does not shift them.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, cast

from shepherd.errors import SessionError
from shepherd.messages import (
    INTERRUPTED,
    JsonObject,
    Message,
    Role,
    message_from_json,
    message_to_json,
)
from shepherd.session import Branch

FIRST_VERSION, VERSION = 1, 2
"""A file begins with the first version; branches and summaries need the second."""

PARSE_ERRORS = (ValueError, TypeError, KeyError, RecursionError)
"""The exceptions of `parse_header` and `parse_change` for a damaged line."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first line: the initial settings of the conversation; `created` is ISO 8601 in UTC."""

    id: str
    cwd: str
    model: str
    system_message: str
    created: str
    version: int = FIRST_VERSION


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message, its number and its time (in UTC; None if the line has no valid time)."""

    number: int
    message: Message
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class MessagesEvicted:
    """The numbers of the messages that left the conversation."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cleared:
    """All messages left the conversation."""


@dataclass(frozen=True, slots=True)
class SettingChanged:
    """The system message or the model has changed."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Branched:
    """The branch that ends at `number` was left; the conversation continues with `messages`.

    `resumed` is the end of an earlier branch that continues; None for a new one. Needs version 2.
    """

    number: int
    messages: tuple[int, ...]
    resumed: int | None = None


@dataclass(frozen=True, slots=True)
class Compacted:
    """The message `number` stands for the messages `replaced`. Needs version 2."""

    number: int
    replaced: tuple[int, ...]
    message: Message
    time: datetime | None = None


Change = MessageAdded | MessagesEvicted | Cleared | SettingChanged | Branched | Compacted


def header_line(header: Header) -> bytes:
    """The header as a line with its newline."""
    return json_line({"type": "session", **asdict(header)})


def change_line(change: Change) -> bytes:
    """A change as a line with its newline."""
    match change:
        case MessageAdded(number=number, message=message):
            data = {"type": "message", "n": number, "message": message_to_json(message)}
        case MessagesEvicted(numbers):
            data = {"type": "evicted", "n": list(numbers)}
        case Cleared():
            data = {"type": "cleared"}
        case SettingChanged(name, value):
            data = {"type": "changed", "name": name, "value": value}
        case Branched(number, messages, resumed):
            data = {"type": "branch", "n": number, "live": list(messages), "resumed": resumed}
        case Compacted(number=number, replaced=replaced, message=message):
            content = message_to_json(message)
            data = {"type": "compacted", "n": number, "of": list(replaced), "message": content}
    return json_line(data | {"time": now()})


def parse_header(line: bytes) -> Header:
    """The header in `line`; raises one of PARSE_ERRORS if it is not valid."""
    data = _object(line)
    if data["type"] != "session":
        raise ValueError("not a session header")
    names = ("id", "cwd", "model", "system_message", "created")
    return Header(**{name: str(data[name]) for name in names}, version=int(data["version"]))


def parse_change(line: bytes) -> Change:
    """The change in `line`; raises one of PARSE_ERRORS if it is not valid."""
    data = _object(line)
    match data["type"]:
        case "message":
            message = message_from_json(_checked(data["message"]))
            return MessageAdded(int(data["n"]), message, parse_time(data.get("time")))
        case "evicted":
            return MessagesEvicted(tuple(int(n) for n in data["n"]))
        case "cleared":
            return Cleared()
        case "changed":
            return SettingChanged(str(data["name"]), str(data["value"]))
        case "branch":
            resumed = data["resumed"]
            numbers = tuple(int(n) for n in data["live"])
            return Branched(int(data["n"]), numbers, None if resumed is None else int(resumed))
        case "compacted":
            message = message_from_json(_checked(data["message"]))
            numbers = tuple(int(n) for n in data["of"])
            return Compacted(int(data["n"]), numbers, message, parse_time(data.get("time")))
        case kind:
            raise ValueError(f"unknown kind of line: {kind!r}")


def with_version(line: bytes, before: int, version: int) -> bytes:
    """The line of a header with another version of one digit."""
    start, digit, end = line.rpartition(b'"version": %d}' % before)
    return start + b'"version": %d}' % version + end if digit else line


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def parse_time(text: object) -> datetime | None:
    """The time that `now` wrote; None for any other text."""
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def json_line(data: JsonObject) -> bytes:
    """An object as a line of JSON with its newline."""
    text = json.dumps(data, ensure_ascii=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only hold escaped
        return json.dumps(data).encode() + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    return _checked(json.loads(line))


def _checked(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError("not a JSON object")
    return cast(dict[str, Any], data)


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
