"""What a server sends, whatever it calls it."""

import codecs

from shepherd.backends.api.framing import LARGEST_EVENT, StreamDecoder, StreamEvent, decoder_for
from shepherd.backends.api.wire import Framing
from shepherd.errors import UnreachableError

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
