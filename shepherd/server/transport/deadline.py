"""Uvicorn's HTTP protocol with an end for clients that are too slow, or send a head without end.

Uvicorn reads HTTP with httptools, which refuses everything that two programs could read
differently. It has no limit for the time and the size of a head, and none for an answer that
nobody reads. Without those, one client could hold memory and connections before a key is checked.
Bodies are limited where their errors can be told: in `shepherd.server.body`.
"""

import asyncio
import math

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from shepherd.server.operation.metrics import Metrics
from shepherd.server.settings import ServerSettings

SURPLUS_FACTOR = 4
"""A body may go on for this multiple of its limit after an early answer."""


class TimedProtocol(HttpToolsProtocol):
    """One connection.

    A timer runs while the server waits for a whole head, and one while an answer can't be written.
    """

    def __init__(
        self, config: Config, state: ServerState, settings: ServerSettings, metrics: Metrics
    ) -> None:
        super().__init__(config, state, {})
        self.access_log = False  # uvicorn's has the query, in which Google's clients send keys
        self._metrics = metrics
        self.timeout_keep_alive = math.ceil(settings.idle_timeout)
        self._settings = settings
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._in_head = False
        self.opened = 0.0
        self._unused = 0
        """The bytes since the last end of a head, of a message, or of a part of a body in use."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered, on a connection that stays open."""
        answered = not self.cycle or self.cycle.response_complete
        return answered and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head; if there are too many connections, an idle one is closed."""
        super().connection_made(transport)
        self._metrics.connections += 1
        self.opened = self.loop.time()
        self._start_clock()
        if 0 < self._settings.max_connections < len(self.connections):
            others = (c for c in self.connections if isinstance(c, TimedProtocol) and c is not self)
            idle = (other for other in others if other.is_idle)
            oldest = min(idle, key=lambda other: other.opened, default=None)
            if oldest is not None:
                oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._metrics.connections -= 1
        self._stop_clock()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; too much of what is of no use ends the connection."""
        if self.is_idle:
            self._start_clock()
        self._unused += len(data)
        super().data_received(data)
        is_surplus = self.is_idle and not self._in_head
        surplus = SURPLUS_FACTOR * self._settings.max_body_bytes
        if self._unused > (surplus if is_surplus else self._settings.max_header_bytes):
            self._end(431)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is whole."""
        super().on_headers_complete()
        self._in_head, self._unused = False, 0
        self._stop_clock()

    def on_body(self, body: bytes) -> None:
        """A part of a body came, of which no use is made after an early answer."""
        if not self.is_idle:
            self._unused = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._unused = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is whole; the rest of a body, if there is any, must come in time."""
        super().on_response_complete()
        if self.cycle.more_body:
            self._start_clock()

    def pause_writing(self) -> None:
        """The client does not read; it gets some time to go on."""
        super().pause_writing()
        self._writing = self.loop.call_later(self._settings.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """End a connection on which something came that is not HTTP."""
        self._end(400)

    def _start_clock(self) -> None:
        if self._reading is None:
            self._reading = self.loop.call_later(self._settings.read_timeout, self._end, 408)

    def _stop_clock(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _end(self, status: int) -> None:
        """Close the connection; the client gets a status if no answer has begun."""
        if self._in_head if self.is_idle else not self.cycle.response_started:
            head = b"connection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head)
            self.transport.close()
        else:
            self.transport.abort()
