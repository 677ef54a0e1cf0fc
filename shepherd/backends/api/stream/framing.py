"""Bytes of a streamed answer into its events, however the network cut them."""

import codecs
from abc import ABC, abstractmethod
from typing import NamedTuple

from shepherd.backends.api.adapter import Framing
from shepherd.errors import UnreachableError

LARGEST_EVENT = 16 * 1024 * 1024
"""More bytes without an event's end are no answer."""


class StreamEvent(NamedTuple):
    """One event, its data as it came; `name` and `id` are "" where the framing, or the server, has
    none."""

    name: str
    data: bytes
    id: str = ""


class StreamDecoder(ABC):
    """Reads one answer. Every cutting of the bytes gives the same."""

    @abstractmethod
    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that are complete by now; UnreachableError for one beyond all measure."""

    @abstractmethod
    def finish(self) -> list[StreamEvent]:
        """The event that no end followed, if there is one. Feeding is over."""


def decoder_for(
    framing: Framing, content_type: str = "", *, largest: int = LARGEST_EVENT
) -> StreamDecoder:
    """The decoder of an answer.

    A server that was asked for server-sent events and sends one JSON object says so in the
    `content_type`; that is one event.
    """
    if framing is Framing.SSE and content_type.partition(";")[0].strip() == "application/json":
        return WholeDecoder(largest)
    return SSEDecoder(largest) if framing is Framing.SSE else LinesDecoder(largest)


class SSEDecoder(StreamDecoder):
    """Server-sent events as browsers read them; but the last one needs no blank line."""

    def __init__(self, largest: int = LARGEST_EVENT) -> None:
        self._lines = _Lines(largest)
        self._largest = largest
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
            _check(self._size, self._largest)
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id":
            self._id = value.decode("utf-8", "replace")


class LinesDecoder(StreamDecoder):
    """One event a line; blank lines are none."""

    def __init__(self, largest: int = LARGEST_EVENT) -> None:
        self._lines = _Lines(largest)

    def feed(self, data: bytes) -> list[StreamEvent]:
        return _events(self._lines.feed(data))

    def finish(self) -> list[StreamEvent]:
        return _events(self._lines.finish())


class WholeDecoder(StreamDecoder):
    """All that comes is one event."""

    def __init__(self, largest: int = LARGEST_EVENT) -> None:
        self._largest = largest
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[StreamEvent]:
        self._size += len(data)
        _check(self._size, self._largest)
        self._pieces.append(data)
        return []

    def finish(self) -> list[StreamEvent]:
        return _events([b"".join(self._pieces).removeprefix(codecs.BOM_UTF8)])


class _Lines:
    """Lines that end with LF, CR or CRLF, without their ends; a BOM before the first is gone."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._held: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[bytes]:
        if data.endswith(b"\n") and not (self._held or self._after_cr or self._first):
            return data.splitlines()
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
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
            _check(self._size, self._largest)
        return lines

    def finish(self) -> list[bytes]:
        rest = b"".join(self._held)
        self._held = []
        if self._first:
            rest = rest.removeprefix(codecs.BOM_UTF8)
        return [rest] if rest else []


def _events(lines: list[bytes]) -> list[StreamEvent]:
    return [StreamEvent("", line) for line in lines if line and not line.isspace()]


def _check(size: int, largest: int) -> None:
    if size > largest:
        raise UnreachableError(f"sent an event of more than {largest} bytes")


_JSON = "application/json"


class SniffedDecoder(StreamDecoder):
    """Server-sent events, or the one JSON object of a server that does not stream.

    Which it is shows the first byte; content types are lost or replaced on the way. Raises
    UnreachableError for a web page.
    """

    def __init__(self, largest: int = LARGEST_EVENT) -> None:
        self._largest = largest
        self._head = b""
        self._chosen: StreamDecoder | None = None

    def feed(self, data: bytes) -> list[StreamEvent]:
        if self._chosen is not None:
            return self._chosen.feed(data)
        self._head += data
        begins = self._head.removeprefix(codecs.BOM_UTF8).lstrip()
        if not begins or codecs.BOM_UTF8.startswith(self._head):
            return []
        if begins.startswith(b"<"):
            raise UnreachableError("it answers with a web page, not as an API")
        kind = _JSON if begins.startswith((b"{", b"[")) else ""
        self._chosen = decoder_for(Framing.SSE, kind, largest=self._largest)
        head, self._head = self._head, b""
        return self._chosen.feed(head)

    def finish(self) -> list[StreamEvent]:
        return [] if self._chosen is None else self._chosen.finish()
