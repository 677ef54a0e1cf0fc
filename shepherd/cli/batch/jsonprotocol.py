"""The objects of a JSON lines conversation: parses input and writes events."""

import json
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from shepherd.errors import ImageError
from shepherd.events import TEXT_EVENTS, CallbackEvent, Topic
from shepherd.images import Image, check_count, decode_image
from shepherd.messages import INTERRUPTED, Message
from shepherd.transcript.records import json_line

MAX_ECHOED = 200


class InputError(Exception):
    """A line that can't be parsed; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class UserInput:
    """A prompt."""

    content: str
    images: tuple[Image, ...] = ()

    @property
    def message(self) -> Message:
        """The message to send."""
        return Message.user(self.content, self.images)


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A request to end the current turn."""


def parse_input(line: bytes) -> UserInput | Interrupt | None:
    """The parsed line, None if it is blank; raises InputError."""
    try:
        text = line.decode().strip()
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8") from error
    if not text.startswith("{"):
        return UserInput(text) if text else None
    try:
        data = cast(dict[str, Any], json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InputError(f"begins with {{ and is not JSON: {error}") from error
    match data:
        case {"type": "user", "content": str(content)} if content.strip():
            return UserInput(content, _images(data.get("images", [])))
        case {"type": "user"}:
            raise InputError('a "user" needs a non-empty text as its "content"')
        case {"type": "interrupt"}:
            return Interrupt()
        case _:
            raise InputError('"type" must be "user" or "interrupt"')


def _images(value: object) -> tuple[Image, ...]:
    if not isinstance(value, list):
        raise InputError('"images" must be a list of objects with "data" and "name"')
    try:
        check_count(cast(list[object], value))
        return tuple(_image(item) for item in cast(list[object], value))
    except ImageError as error:
        raise InputError(str(error)) from error


def _image(value: object) -> Image:
    match value:
        case {"data": str(data), "name": str(name)}:
            return decode_image(data, name)
        case {"data": str(data)}:
            return decode_image(data)
        case _:
            raise InputError('an image needs its bytes in base64 as its "data"')


@dataclass(slots=True)
class EventWriter:
    """Writes one object per line, each flushed; `broken` is True once the output is closed."""

    file: BinaryIO
    broken: bool = False
    _open_calls: dict[str, str] = field(default_factory=dict[str, str])

    def receive(self, event: CallbackEvent, content: str, name: str, id: str) -> bool:
        """Write an event; the callback of a turn."""
        if event in TEXT_EVENTS:
            kind = "thinking" if event is CallbackEvent.THINKING else "text"
            return self.write({"type": kind, "content": content})
        match event:
            case CallbackEvent.TOOL_CALL:
                self._open_calls[id] = name
                return self.write(
                    {"type": "tool_use", "id": id, "name": name, "input": json.loads(content)}
                )
            case CallbackEvent.TOOL_RESULT:
                return self._result(id, name, content)
            case CallbackEvent.STATS:
                provider = {"provider": name} if name else {}
                return self.write({"type": "stats", **json.loads(content), **provider})
            case CallbackEvent.ERROR:
                return self.error(name, content)
            case CallbackEvent.SYSTEM if name != Topic.PREFILL:
                of_call = {"id": id} if id else {}
                return self.write({"type": "system", "topic": name, "content": content, **of_call})
            case _:
                return not self.broken

    def notice(self, text: str) -> None:
        """A sentence for the user."""
        self.write({"type": "system", "topic": Topic.NOTICE, "content": text})

    def error(self, kind: str, message: str, **more: object) -> bool:
        """Report an error; the conversation continues."""
        return self.write({"type": "error", "error": kind, "message": message, **more})

    def bad_input(self, number: int, line: bytes, error: InputError) -> None:
        """Report that line `number` is invalid; its beginning is sent back."""
        excerpt = line.decode("utf-8", "replace")[:MAX_ECHOED]
        self.error("InputError", f"line {number}: {error}", line=number, input=excerpt)

    def end_turn(self, reason: str, session: str) -> None:
        """Report the end of the turn; calls without a result get one."""
        for call_id, name in list(self._open_calls.items()):
            self._result(call_id, name, INTERRUPTED)
        self.write({"type": "end_turn", "reason": reason, "session": session})

    def write(self, data: dict[str, object]) -> bool:
        """Write an object; False if the output is closed."""
        if not self.broken:
            try:
                self.file.write(json_line(data))
                self.file.flush()
            except BrokenPipeError:
                self.broken = True
        return not self.broken

    def _result(self, id: str, name: str, content: str) -> bool:
        self._open_calls.pop(id, None)
        return self.write({"type": "tool_result", "id": id, "name": name, "content": content})
