"""Splits the bytes of a streamed answer into its events."""

import codecs
from abc import ABC, abstractmethod
from typing import NamedTuple

from shepherd.backends.api import stream
from shepherd.errors import UnreachableError

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""An event with more bytes is an error."""


COMMENT = ":"
"""The name of a comment among server-sent events; its data is the text."""


class StreamEvent(NamedTuple):
    """One event with its raw data; `name` and `id` are "" if the framing or the server has none."""

    name: str
    data: bytes
    id: str = ""


class StreamDecoder(ABC):
    """Decodes one answer; the events do not depend on how the bytes are divided."""

    @abstractmethod
    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that are complete by now; UnreachableError for one that is too large."""

    @abstractmethod
    def finish(self) -> list[StreamEvent]:
        """The last event, if its end is missing. No more data may follow."""


def decoder_for(framing: stream.Framing, *, max_bytes: int = MAX_EVENT_BYTES) -> StreamDecoder:
    """The decoder of an answer."""
    return SniffedDecoder(max_bytes) if framing is stream.Framing.SSE else LinesDecoder(max_bytes)


class SSEDecoder(StreamDecoder):
    """Server-sent events as browsers read them, but the last one needs no blank line."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._lines = _Lines(max_bytes)
        self._max_bytes = max_bytes
        # the fields of the event that has begun
        self._data_size = 0
        self._name = self._id = ""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        for line in self._lines.feed(data):
            self._take(line, events)
        return events

    def finish(self) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        for line in (*self._lines.finish(), b""):  # the empty line ends the last event
            self._take(line, events)
        return events

    def _take(self, line: bytes, events: list[StreamEvent]) -> None:
        """Read one line; an empty one ends an event, which is added to `events`.

        A comment is an event of its own. Other fields than data, event and id are ignored.
        """
        if not line:
            if self._data:
                events.append(StreamEvent(self._name, b"\n".join(self._data), self._id))
            self._name, self._id, self._data, self._data_size = "", "", [], 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not field:
            events.append(StreamEvent(COMMENT, value))
        elif field == b"data":
            self._data_size += len(line)
            _check_size(self._data_size, self._max_bytes)
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id":
            self._id = value.decode("utf-8", "replace")


class LinesDecoder(StreamDecoder):
    """One event per line; blank lines are ignored."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._lines = _Lines(max_bytes)

    def feed(self, data: bytes) -> list[StreamEvent]:
        return _events(self._lines.feed(data))

    def finish(self) -> list[StreamEvent]:
        return _events(self._lines.finish())


class WholeDecoder(StreamDecoder):
    """The whole answer is one event."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[StreamEvent]:
        self._size += len(data)
        _check_size(self._size, self._max_bytes)
        self._pieces.append(data)
        return []

    def finish(self) -> list[StreamEvent]:
        return _events([b"".join(self._pieces).removeprefix(codecs.BOM_UTF8)])


class _Lines:
    """Lines that end with LF, CR or CRLF, without their ends; a BOM before the first is removed."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: list[bytes] = []  # the pieces of a line without its end
        self._held_size = 0
        self._is_after_cr = False  # a LF that comes next belongs to this CR
        self._is_at_start = True  # a BOM may come

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete with this data; the beginning of another is held back."""
        # most pieces are whole lines; the rest of this method is for all others
        if data.endswith(b"\n") and not (self._held or self._is_after_cr or self._is_at_start):
            return data.splitlines()
        if self._is_after_cr and data:
            data = data.removeprefix(b"\n")  # of a CRLF that was cut in the middle
            self._is_after_cr = False
        if not data:
            return []
        self._is_after_cr = data.endswith(b"\r")
        lines = data.splitlines()
        unfinished = b"" if data.endswith((b"\r", b"\n")) else lines.pop()
        if lines:
            if self._held:
                lines[0] = b"".join([*self._held, lines[0]])
                self._held, self._held_size = [], 0
            if self._is_at_start:
                lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
                self._is_at_start = False
        if unfinished:
            self._held.append(unfinished)
            self._held_size += len(unfinished)
            _check_size(self._held_size, self._max_bytes)
        return lines

    def finish(self) -> list[bytes]:
        """The last line, if its end is missing."""
        line = b"".join(self._held)
        self._held = []
        if self._is_at_start:
            line = line.removeprefix(codecs.BOM_UTF8)
        return [line] if line else []


def _events(lines: list[bytes]) -> list[StreamEvent]:
    return [StreamEvent("", line) for line in lines if line and not line.isspace()]


def _check_size(size: int, max_bytes: int) -> None:
    """Raise UnreachableError for an event that would fill the memory."""
    if size > max_bytes:
        raise UnreachableError(f"sent an event of more than {max_bytes} bytes")


class SniffedDecoder(StreamDecoder):
    """Server-sent events, or the one JSON object of a server that does not stream.

    The first byte tells which; content types are lost or replaced on the way. Raises
    UnreachableError for a web page.
    """

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._undecoded = b""
        self._chosen: StreamDecoder | None = None

    def feed(self, data: bytes) -> list[StreamEvent]:
        if self._chosen is not None:
            return self._chosen.feed(data)
        self._undecoded += data
        text = self._undecoded.removeprefix(codecs.BOM_UTF8).lstrip()
        if not text or codecs.BOM_UTF8.startswith(self._undecoded):
            return []  # nothing but space, or a part of a byte order mark
        if text.startswith(b"<"):
            raise UnreachableError("it answers with a web page, not as an API")
        kind = WholeDecoder if text.startswith((b"{", b"[")) else SSEDecoder
        self._chosen = kind(self._max_bytes)
        return self._chosen.feed(self._undecoded)

    def finish(self) -> list[StreamEvent]:
        return [] if self._chosen is None else self._chosen.finish()
