"""Splits the bytes of a streamed answer into its events."""

import codecs
from abc import ABC, abstractmethod
from typing import NamedTuple

from shepherd.backends.api import stream
from shepherd.errors import UnreachableError

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""An event with more bytes is an error."""


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
        self._size = 0
        self._name = self._id = ""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        for line in self._lines.feed(data):
            self._take(line, events)
        return events

    def finish(self) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        for line in (*self._lines.finish(), b""):
            self._take(line, events)
        return events

    def _take(self, line: bytes, events: list[StreamEvent]) -> None:
        if not line:
            if self._data:
                events.append(StreamEvent(self._name, b"\n".join(self._data), self._id))
            self._name, self._id, self._data, self._size = "", "", [], 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(line)
            _check(self._size, self._max_bytes)
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
        _check(self._size, self._max_bytes)
        self._pieces.append(data)
        return []

    def finish(self) -> list[StreamEvent]:
        return _events([b"".join(self._pieces).removeprefix(codecs.BOM_UTF8)])


class _Lines:
    """Lines that end with LF, CR or CRLF, without their ends; a BOM before the first is removed."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[bytes]:
        # most pieces are whole lines; the rest of this method is for all others
        if data.endswith(b"\n") and not (self._held or self._after_cr or self._first):
            return data.splitlines()
        if self._after_cr and data:
            data = data.removeprefix(b"\n")  # of a CRLF that was cut in the middle
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines()
        rest = b"" if data.endswith((b"\r", b"\n")) else lines.pop()
        if lines:
            if self._held:
                lines[0] = b"".join([*self._held, lines[0]])
                self._held, self._size = [], 0
            if self._first:
                lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
                self._first = False
        if rest:
            self._held.append(rest)
            self._size += len(rest)
            _check(self._size, self._max_bytes)
        return lines

    def finish(self) -> list[bytes]:
        rest = b"".join(self._held)
        self._held = []
        if self._first:
            rest = rest.removeprefix(codecs.BOM_UTF8)
        return [rest] if rest else []


def _events(lines: list[bytes]) -> list[StreamEvent]:
    return [StreamEvent("", line) for line in lines if line and not line.isspace()]


def _check(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise UnreachableError(f"sent an event of more than {max_bytes} bytes")


class SniffedDecoder(StreamDecoder):
    """Server-sent events, or the one JSON object of a server that does not stream.

    The first byte tells which; content types are lost or replaced on the way. Raises
    UnreachableError for a web page.
    """

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._head = b""
        self._chosen: StreamDecoder | None = None

    def feed(self, data: bytes) -> list[StreamEvent]:
        if self._chosen is not None:
            return self._chosen.feed(data)
        self._head += data
        begins = self._head.removeprefix(codecs.BOM_UTF8).lstrip()
        if not begins or codecs.BOM_UTF8.startswith(self._head):
            return []  # nothing but space, or a part of a byte order mark
        if begins.startswith(b"<"):
            raise UnreachableError("it answers with a web page, not as an API")
        kind = WholeDecoder if begins.startswith((b"{", b"[")) else SSEDecoder
        self._chosen = kind(self._max_bytes)
        head, self._head = self._head, b""
        return self._chosen.feed(head)

    def finish(self) -> list[StreamEvent]:
        return [] if self._chosen is None else self._chosen.finish()
