"""Uvicorn's HTTP protocol with time limits; every refusal is an error object."""

import asyncio
import logging
import math
from collections.abc import Awaitable
from dataclasses import replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from shepherd.json_text import to_json
from shepherd.server.api import ErrorShape, ErrorShapes
from shepherd.server.errors import ApiError
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.quick import QuickConnection
from shepherd.server.transport.table import ConnectionTable

logger = logging.getLogger(__name__)

MIN_BODY_RATE = 16 * 1024
"""The number of bytes of a body that give a client another second."""

DRAIN_FACTOR = 4
"""A body may continue for this multiple of its limit after an early answer."""

LINGER_SECONDS = 2.0
"""The time in which a refused client may still write before it reads the answer."""

_SLICE = 16 * 1024


class _Awaited(StrEnum):
    """The next part that the client must send."""

    REQUEST = "request"
    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"


class HttpProtocol(H11Protocol):
    """One connection. `ConnectionTable` calls `check`, which ends it after a limit has passed."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: ServerSettings,
        table: ConnectionTable,
        errors: ErrorShapes,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._loaded_app = cast(ASGIApp, self.app)
        self.app = cast(Any, self._serve)
        self.access_log = False  # uvicorn's has the query, in which Google's clients send keys
        self.conn = self._strict = QuickConnection(settings.max_header_bytes, settings.max_headers)
        self.address = ""
        self._settings = settings
        self._table = table
        self._errors = errors
        self.timeout_keep_alive = math.ceil(settings.idle_timeout)
        self._phase: object = None
        self._since = self._checked = self.loop.time()
        self._received = 0
        self._unsent_since: float | None = None
        self._lingers_since: float | None = None

    @property
    def idle(self) -> bool:
        """Whether it waits for the head of a request."""
        return self._strict.their_state is h11.IDLE and self._lingers_since is None

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The request that was read last; uvicorn's type does not say that it may be None."""
        return self.cycle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or refuse it at once."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self._table.admit(self):
            self._follow()
            return
        message = "There are too many connections; close some, or try again later."
        headers = {"Retry-After": "1"}
        error = ApiError(503, message, "too_many_connections", headers=headers)
        error = self._noted(error)
        transport.write(raw_response(error, self._errors.default))
        self._lingers_since = self.loop.time()
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release its place."""
        self._table.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data in slices: each is checked against the limits before the next."""
        for start in range(0, len(data), _SLICE):
            if self._lingers_since is not None or self.transport.is_closing():
                return
            piece = data[start : start + _SLICE]
            self._received += len(piece)
            super().data_received(piece)
            self._follow()
        self._check_drained()

    def on_response_complete(self) -> None:
        """Start the time limit of the next request."""
        if self._lingers_since is None:
            super().on_response_complete()
            self._follow()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._unsent_since = None
        super().resume_writing()

    def shutdown(self) -> None:
        """Close an idle connection; a running request ends first."""
        if self._lingers_since is not None:
            self.transport.abort()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request with its reason; uvicorn's `msg` does not contain one."""
        self._refuse(self._strict.refusal)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle for too long."""
        if self._lingers_since is None:
            super().timeout_keep_alive_handler()

    def close_idle(self) -> None:
        """Close it to admit another one."""
        self.transport.abort()

    def check(self, now: float) -> None:
        """End the connection if the client reads or writes too slowly."""
        elapsed, self._checked = now - self._checked, now
        if self._lingers_since is not None:
            if now - self._lingers_since > LINGER_SECONDS:
                self.transport.abort()
            return
        if self.flow.read_paused:
            self._since += elapsed  # the client waits for the server
        elif now - self._since > self._allowed_seconds():
            self._time_out()
        self._check_unsent(now)

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request; the connection is told which part of a body is the last."""

        def send_part(message: Message) -> Awaitable[None]:
            body = message["type"] == "http.response.body"
            self._strict.sends_last = body and not message.get("more_body", False)
            return send(message)

        return self._loaded_app(scope, receive, send_part)

    def _should_upgrade(self) -> bool:
        return False

    def _end_writing(self) -> None:
        """Send what was written, and end; encrypted connections can't end one direction alone."""
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        try:
            self.transport.write_eof()
        except OSError:  # the client has disconnected already
            self.transport.abort()

    def _follow(self) -> None:
        """Restart the clock when a head, a body or the wait for a head begins."""
        phase = (self._waits_for(), self.cycle)
        if phase != self._phase:
            self._phase, self._since, self._received = phase, self.loop.time(), 0

    def _waits_for(self) -> _Awaited:
        state = self._strict.their_state
        if state is h11.SEND_BODY:
            return _Awaited.BODY
        if state is not h11.IDLE:
            return _Awaited.NOTHING
        return _Awaited.HEAD if self._strict.trailing_data[0] else _Awaited.REQUEST

    def _allowed_seconds(self) -> float:
        patience = self._settings.read_timeout
        match self._waits_for():
            case _Awaited.BODY:
                return patience + self._received / MIN_BODY_RATE
            case _Awaited.REQUEST if self._cycle is not None:
                return max(patience, self._settings.idle_timeout)
            case _Awaited.NOTHING:
                return math.inf
            case _:
                return patience

    def _time_out(self) -> None:
        awaited = self._waits_for()
        if awaited is _Awaited.REQUEST:
            self.transport.abort()
            return
        message = f"The request's {awaited} took longer than this server waits."
        self._refuse(ApiError(408, message, "request_timeout"))

    def _check_unsent(self, now: float) -> None:
        if not self.transport.get_write_buffer_size():
            self._unsent_since = None
        elif self._unsent_since is None:
            self._unsent_since = now
        elif now - self._unsent_since > self._settings.write_timeout:
            logger.warning("%s does not read its answer: the connection is closed", self.address)
            self.transport.abort()

    def _check_drained(self) -> None:
        """End a client that continues to send a body after the answer."""
        answered = self._cycle is not None and self._cycle.response_complete
        limit = DRAIN_FACTOR * self._settings.max_body_bytes
        if answered and self._strict.their_state is h11.SEND_BODY and self._received > limit:
            self.transport.abort()

    def _noted(self, error: ApiError) -> ApiError:
        """The error of a request that never was whole, with the id in the log."""
        return replace(error, request_id=self._table.note_refusal(error.status, self.address))

    def _refuse(self, error: ApiError) -> None:
        """Answer with an error unless an answer has begun; then end the connection."""
        self._unset_keepalive_if_required()
        self._lingers_since = self.loop.time()
        answered = self._strict.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
        cycle, shape = self._cycle, self._errors.default
        if cycle is None or cycle.response_complete:
            error = self._noted(error)
        else:  # the application notes the end of this request
            shape = self._errors.of(cycle.scope["path"], cycle.scope["headers"])
            cycle.disconnected = True
            cycle.message_event.set()
        if answered:
            self.transport.abort()
            return
        self.transport.write(raw_response(error, shape))
        self._end_writing()


def raw_response(error: ApiError, shape: ErrorShape) -> bytes:
    """The bytes of an error that ends its connection."""
    reply = shape.reply(error)
    body = to_json(reply.body).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **({"x-request-id": error.request_id} if error.request_id else {}),
        **reply.headers,
    }
    lines = [f"HTTP/1.1 {reply.status} {_phrase(reply.status)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # an API may define its own statuses
        return ""
