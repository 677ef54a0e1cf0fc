"""The lines of a session, and the conversation that they make.

The first line is the header; every other line is one change. Messages are numbered from 0 for the
life of the session. Evictions name those numbers, so that a damaged line does not shift them.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from msgspec import Struct, field, structs

from shepherd.errors import SessionError
from shepherd.messages import INTERRUPTED, JsonObject, Message, Role, message_from_json
from shepherd.session import Branch

VERSION = 2

PARSE_ERRORS = (ValueError, TypeError, KeyError, RecursionError)
"""The exceptions for a damaged line."""


class Header(Struct, frozen=True, tag_field="type", tag="session"):
    """The first line: the initial settings of the conversation; `created` is ISO 8601 in UTC."""

    id: str
    cwd: str
    model: str
    system_message: str
    created: str
    version: int = VERSION


class _Change(Struct, frozen=True, tag_field="type", kw_only=True):
    """A later line; `time` is set when it is written."""

    time: str = ""


class MessageAdded(_Change, frozen=True, tag="message"):
    """A message in its JSON form, and its number."""

    number: int = field(name="n")
    message: JsonObject


class AnswerGrown(_Change, frozen=True, tag="growing"):
    """More of the answer that will be the message `number`.

    Any other change ends it: the message itself has all of its text, and without one it has failed.
    """

    number: int = field(name="n")
    content: str = ""
    reasoning: str = ""


class MessagesEvicted(_Change, frozen=True, tag="evicted"):
    """The numbers of the messages that left the conversation."""

    numbers: tuple[int, ...] = field(name="n")


class Cleared(_Change, frozen=True, tag="cleared"):
    """All messages left the conversation."""


class SettingChanged(_Change, frozen=True, tag="changed"):
    """The system message or the model has changed."""

    name: str
    value: str


class Branched(_Change, frozen=True, tag="branch"):
    """The branch that ends at `number` was left; the conversation continues with `messages`.

    `resumed` is the end of an earlier branch that continues; None for a new one.
    """

    number: int = field(name="n")
    messages: tuple[int, ...] = field(name="live")
    resumed: int | None


class Compacted(_Change, frozen=True, tag="compacted"):
    """The message `number` stands for the messages `replaced`."""

    number: int = field(name="n")
    replaced: tuple[int, ...] = field(name="of")
    message: JsonObject


Change = (
    MessageAdded | AnswerGrown | MessagesEvicted | Cleared | SettingChanged | Branched | Compacted
)


def header_line(header: Header) -> bytes:
    """The header as a line with its newline."""
    return json_line(msgspec.to_builtins(header))


def change_line(change: Change) -> bytes:
    """A change as a line with its newline, and with the time of now."""
    return json_line(msgspec.to_builtins(structs.replace(change, time=now())))


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


def repaired(numbered: Iterable[tuple[int, Message]]) -> list[tuple[int | None, Message]]:
    """The messages with a result after each call; an added result has the number None.

    Results without a call are removed.
    """
    whole: list[tuple[int | None, Message]] = []
    missing_results: dict[str, Message] = {}  # of the last answer's calls, by their ids
    for number, message in numbered:
        if message.role is Role.TOOL:
            if missing_results.pop(message.tool_call_id, None) is not None:
                whole.append((number, message))
            continue
        whole += [(None, result) for result in missing_results.values()]
        missing_results = {c.id: Message.tool(c, INTERRUPTED) for c in message.tool_calls}
        whole.append((number, message))
    return whole + [(None, result) for result in missing_results.values()]


class SavedSession(Struct, frozen=True):
    """A conversation as read from its lines.

    `numbers` and `times` run parallel to `messages`; None marks a result that was added for a call
    without one. `is_unfinished`: the last message is an answer without its end. `sound_bytes` is
    the length of the lines without an incomplete last one; `complete` says whether they end in a
    newline. `warnings` has a sentence per damaged line.
    """

    header: Header
    system_message: str
    model: str
    messages: tuple[Message, ...]
    numbers: tuple[int | None, ...]
    times: tuple[datetime | None, ...]
    next_number: int
    branches: tuple[Branch, ...]
    is_unfinished: bool
    sound_bytes: int
    complete: bool
    warnings: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.header.id


class _Replay:
    """The changes of a session, applied one after another."""

    def __init__(self, header: Header) -> None:
        self.present: dict[int, Message] = {}  # in the order of the conversation
        self.all: dict[int, Message] = {}
        self.branches: list[Branch] = []
        self.times: dict[int | None, datetime | None] = {}
        self.settings = {"system_message": header.system_message, "model": header.model}
        self.next_number = 0
        self.growing: int | None = None
        """The number of the answer that was being written at the last line."""

    def apply(self, line: bytes) -> bool:
        """Apply a line; False, and nothing changes, if it is damaged."""
        try:
            self._apply_change(msgspec.convert(json.loads(line), Change))
        except PARSE_ERRORS:
            return False
        return True

    def _apply_change(self, change: Change) -> None:
        """Make the change to the messages, branches and settings."""
        begun, self.growing = self.growing, None
        if begun is not None and not isinstance(change, AnswerGrown):
            del self.present[begun]  # the message follows, or the answer has failed
        match change:
            case AnswerGrown():
                self._grow(change, is_first=begun != change.number)
            case MessageAdded(number=number):
                self._add(change)
                self.present[number] = self.all[number]
            case MessagesEvicted(numbers=numbers):
                for number in numbers:
                    self.present.pop(number, None)
            case Cleared():
                self.present.clear()
            case SettingChanged(name=name, value=value):
                self.settings[name] = value
            case Branched(number=number, messages=messages, resumed=resumed):
                # the branch that goes on is the conversation now, and the one that was left is not
                self.branches = [b for b in self.branches if b.end != resumed]
                self.branches.append(self.branch(number))
                self.present = {n: self.all[n] for n in messages if n in self.all}
                self.next_number = max(self.next_number, number + 1)
            case Compacted(number=number, replaced=replaced):
                self._add(change)
                # the summary stands in the place of the first message that it replaces
                numbers = list(self.present)
                first = next((i for i, n in enumerate(numbers) if n in replaced), 0)
                numbers.insert(first, number)
                self.present = {n: self.all[n] for n in numbers if n not in replaced}

    def branch(self, end: int) -> Branch:
        """The present messages; each call has a result."""
        kept = repaired(self.present.items())
        numbers, messages = tuple(n for n, _ in kept), tuple(m for _, m in kept)
        return Branch(end, numbers, messages, tuple(self.times.get(n) for n in numbers))

    def _add(self, change: MessageAdded | Compacted) -> None:
        self._keep(change.number, message_from_json(change.message), change.time)

    def _grow(self, part: AnswerGrown, *, is_first: bool) -> None:
        """Add a part of an answer, which is the last message as long as nothing else comes."""
        before = Message.assistant("") if is_first else self.all[part.number]
        content, reasoning = before.content + part.content, before.reasoning + part.reasoning
        self._keep(part.number, Message.assistant(content, reasoning), part.time)
        self.present[part.number] = self.all[part.number]
        self.growing = part.number

    def _keep(self, number: int, message: Message, time: str) -> None:
        self.all[number] = message
        self.times[number] = parse_time(time)
        self.next_number = max(self.next_number, number + 1)


def parse_session(name: str, data: bytes) -> SavedSession:
    """The conversation in `data`, the lines of a session; `name` names it in messages.

    Raises SessionError if there is no header.
    """
    *lines, last_part = data.split(b"\n")  # what is behind the last newline, usually nothing
    header = parse_first_line(name, lines[0] if lines else last_part)
    replay = _Replay(header)
    warnings: list[str] = []
    for number, line in enumerate(lines[1:], start=2):
        if not replay.apply(line) and line.strip():
            warnings.append(f"{name}:{number}: damaged line skipped")
    # a killed process can have written a line without its newline
    is_whole_line = bool(lines) and replay.apply(last_part)
    ends_in_newline = bool(lines) and not is_whole_line  # once the last part is cut off
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
        is_unfinished=replay.growing is not None,
        sound_bytes=len(data) - len(last_part) if ends_in_newline else len(data),
        complete=ends_in_newline,
        warnings=tuple(warnings),
    )


def parse_first_line(name: str, line: bytes) -> Header:
    """The header in the first line of a session; raises SessionError."""
    try:
        header = msgspec.convert(json.loads(line), Header)
    except PARSE_ERRORS as error:
        raise SessionError(f"{name}:1: not a session of Shepherd: {error}") from error
    if header.version > VERSION:
        raise SessionError(f"{name}: written by a newer Shepherd (format {header.version})")
    return header
