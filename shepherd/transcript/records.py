"""The lines of a session.

The first line is the header; every other line is one change. Messages are numbered from 0 for the
life of the session. Evictions name those numbers, so that a damaged line does not shift them.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, cast

from shepherd.messages import JsonObject, Message, message_from_json, message_to_json

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
