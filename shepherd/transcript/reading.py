"""Reads session files, including damaged ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from shepherd.errors import SessionError
from shepherd.messages import INTERRUPTED, Message, Role
from shepherd.transcript.records import (
    PARSE_ERRORS,
    VERSION,
    Change,
    Cleared,
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
    """A conversation as read from its file.

    `numbers` and `times` run parallel to `messages`; None marks a result that was added for a call
    without one. `sound_bytes` is the length of the file without an incomplete last line;
    `complete` says whether the file ends in a newline. `warnings` has a sentence per damaged line.
    """

    path: Path
    header: Header
    system_message: str
    model: str
    messages: tuple[Message, ...]
    numbers: tuple[int | None, ...]
    times: tuple[datetime | None, ...]
    next_number: int
    sound_bytes: int
    complete: bool
    warnings: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.header.id


class _Replay:
    """The changes of a file, applied one after another."""

    def __init__(self, header: Header) -> None:
        self.live: dict[int, Message] = {}
        self.times: dict[int | None, datetime | None] = {}
        self.settings = {"system_message": header.system_message, "model": header.model}
        self.next_number = 0

    def apply(self, change: Change) -> None:
        match change:
            case MessageAdded(number, message, time):
                self.live[number] = message
                self.times[number] = time
                self.next_number = max(self.next_number, number + 1)
            case MessagesEvicted(numbers):
                for number in numbers:
                    self.live.pop(number, None)
            case Cleared():
                self.live.clear()
            case SettingChanged(name, value):
                self.settings[name] = value


def read_header(path: Path) -> Header:
    """The first line of the file at `path`; raises SessionError."""
    try:
        with path.open("rb") as file:
            return _header(path, file.readline())
    except OSError as error:
        raise SessionError(f"{path}: can't be read: {error.strerror}") from error


def read_session(path: Path) -> SavedSession:
    """The conversation in the file at `path`; raises SessionError if there is no header."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SessionError(f"{path}: can't be read: {error.strerror}") from error
    return parse_session(path, data)


def parse_session(path: Path, data: bytes) -> SavedSession:
    """The conversation in `data`, the content of the file at `path`."""
    *lines, tail = data.split(b"\n")
    header = _header(path, lines[0] if lines else tail)
    replay = _Replay(header)
    warnings: list[str] = []
    for number, line in enumerate(lines[1:], start=2):
        change = _change(line)
        if change is not None:
            replay.apply(change)
        elif line.strip():
            warnings.append(f"{path}:{number}: damaged line skipped")
    whole_tail = bool(lines) and _change(tail) is not None
    if whole_tail:
        replay.apply(parse_change(tail))
    kept = repaired(sorted(replay.live.items()))
    return SavedSession(
        path=path,
        header=header,
        system_message=replay.settings["system_message"],
        model=replay.settings["model"],
        messages=tuple(message for _, message in kept),
        numbers=tuple(number for number, _ in kept),
        times=tuple(replay.times.get(number) for number, _ in kept),
        next_number=replay.next_number,
        sound_bytes=len(data) if whole_tail or not lines else len(data) - len(tail),
        complete=bool(lines) and not whole_tail,
        warnings=tuple(warnings),
    )


def _header(path: Path, line: bytes) -> Header:
    try:
        header = parse_header(line)
    except PARSE_ERRORS as error:
        raise SessionError(f"{path}:1: not a session of Shepherd: {error}") from error
    if header.version > VERSION:
        raise SessionError(f"{path}: written by a newer Shepherd (format {header.version})")
    return header


def _change(line: bytes) -> Change | None:
    try:
        return parse_change(line)
    except PARSE_ERRORS:
        return None
