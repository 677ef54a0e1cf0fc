"""Uvicorn with our signals, an end that waits for requests, and an end for slow clients.

Uvicorn reads HTTP with httptools, which refuses everything that two programs could read
differently. It has no limit for the time and the size of a head, and none for an answer that
nobody reads. Without those, one client could hold memory and connections before a key is checked.
Bodies are limited where their errors can be told: in `shepherd.server.body`.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial

import uvicorn
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from shepherd.errors import ShepherdError
from shepherd.server.app import ServerApp
from shepherd.server.errors import ApiError
from shepherd.server.operation.metrics import Metrics
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.tls import ServerTls
from shepherd.tasks import end_tasks
from shepherd.tools.text import pluralize

logger = logging.getLogger("shepherd.server")


class DrainingServer(uvicorn.Server):
    """Uvicorn that waits for running requests at the first signal and not at the second."""

    def __init__(
        self,
        app: ServerApp,
        drain: Callable[[], None] = lambda: None,
        *,
        settings: ServerSettings,
        tls: ServerTls | None = None,
        served: Callable[[], None] = lambda: None,
    ) -> None:
        """`drain` ends work that would never end by itself, once the server begins to end.

        `served` is called when all requests have ended.
        """
        self._lifecycle = app.context.lifecycle
        self._metrics = app.context.monitor.metrics
        self._drain = drain
        self._served = served
        self._settings = settings
        self._tls = tls
        self._reloads = set[asyncio.Task[None]]()
        self._has_terminal = sys.stderr is not None and sys.stderr.isatty()
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,  # `logging_to_stderr` has uvicorn's log too
                access_log=False,  # `Front` writes it
                server_header=False,
                proxy_headers=False,  # a client could claim any address with them
            )
        )

    async def run_while_loading(
        self, sockets: list[socket.socket], load: Callable[[], Awaitable[None]]
    ) -> None:
        """Serve until the end; work is refused until `load` has ended, whose error is raised."""
        self._lifecycle.begin_load()
        loading = asyncio.ensure_future(load())
        loading.add_done_callback(self._note_loaded)
        await self.serve(sockets)
        self._served()
        await self.end_requests()  # after a forced end, uvicorn leaves them running
        await end_tasks(loading)
        if not loading.cancelled():  # it was cancelled if a signal came while the model was loaded
            await loading

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections; those of the Unix socket are not encrypted.

        Uvicorn's own start would encrypt these too, and takes no limits for a connection.
        """
        loop, state = asyncio.get_running_loop(), self.server_state
        protocol = partial(TimedProtocol, self.config, state, self._settings, self._metrics)
        self.servers = []
        for sock in sockets or []:
            context = None
            if self._tls is not None and sock.family != socket.AF_UNIX:
                context = self._tls.context
            # asyncio refuses a time for handshakes without encryption
            seconds = None if context is None else self._settings.read_timeout
            listener = await loop.create_server(
                protocol, sock=sock, ssl=context, ssl_handshake_timeout=seconds
            )
            self.servers.append(listener)
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to end, also because the lifecycle says so; uvicorn asks ten times a second."""
        self.should_exit = self.should_exit or self._lifecycle.stopping
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections; running requests get the time of the settings."""
        seconds = self._lifecycle.stop_seconds  # those of a request for the end
        if seconds is None:
            seconds = self._settings.shutdown_seconds or None  # 0: without a limit
        if self.server_state.tasks and not self.force_exit:
            requests = pluralize(len(self.server_state.tasks), "running request")
            logger.info("Waiting for %s; a second signal ends all", requests)
        self._drain()
        if seconds is not None:  # uvicorn's own wait below has no limit
            asyncio.get_running_loop().call_later(seconds, partial(self.end, force=True))
        await super().shutdown(sockets)

    def end(self, *, force: bool = False) -> None:
        """Stop to serve; running requests go on unless the end is forced."""
        self.should_exit = True
        if force:
            self.force_exit = True
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    async def end_requests(self) -> None:
        """Cancel the requests that still run."""
        await end_tasks(*self._reloads, *self.server_state.tasks)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle the signals here; uvicorn would raise them again, and skip our clean-up."""
        if threading.current_thread() is not threading.main_thread():  # no other gets signals
            yield
            return
        loop, stop = asyncio.get_running_loop(), self._on_signal
        handlers = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGHUP: self._on_hangup}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _note_loaded(self, loading: "asyncio.Future[None]") -> None:
        """End a server whose model could not be loaded; `run_while_loading` raises the error."""
        if not loading.cancelled() and loading.exception() is not None:
            self.end(force=True)

    def _on_signal(self) -> None:
        """End after the running requests; at the second signal end them too."""
        if self.should_exit or self._lifecycle.stopping:
            self.end(force=True)
        else:
            self._lifecycle.begin_stop()

    def _on_hangup(self) -> None:
        """Reload, unless the terminal of the log was closed."""
        # a server that began without a terminal is a service, whose manager asks for a reload
        if self._has_terminal and not os.isatty(sys.stderr.fileno()):
            self._lifecycle.begin_stop()
            return
        task = asyncio.get_running_loop().create_task(self._reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        """Read the settings again, in a task of a signal; an error goes to the log."""
        try:
            await self._lifecycle.begin_reload()
        except (ApiError, ShepherdError) as error:
            logger.error("Nothing was changed: %s", error)


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
        # ends a connection whose client sends, or reads, too slowly; None while it need not do so
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._in_head = False  # between the first byte of a request and its last header
        self.opened_at = 0.0  # the loop's time
        self._counts = False  # in the number of connections
        self._unused_bytes = 0
        """The bytes since the last end of a head, of a message, or of a part of a body in use."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered, on a connection that stays open."""
        is_answered = not self.cycle or self.cycle.response_complete  # a cycle: one request
        return is_answered and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a head; if there are too many connections, an idle one is closed."""
        super().connection_made(transport)
        self._metrics.connections += 1
        self._counts = True
        self.opened_at = self.loop.time()
        self._start_clock()
        if 0 < self._settings.max_connections < self._metrics.connections:  # 0: without a limit
            others = (c for c in self.connections if isinstance(c, TimedProtocol) and c is not self)
            idle = (other for other in others if other.is_idle)
            oldest = min(idle, key=lambda other: other.opened_at, default=None)
            if oldest is not None:  # without one, requests on this connection are refused
                oldest.leave()  # its end is noted later than requests of other new ones
                oldest.transport.abort()

    def leave(self) -> None:
        """Count as a connection no more."""
        self._metrics.connections -= self._counts
        self._counts = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self.leave()
        self._stop_clock()
        self.resume_writing()  # the timer of an answer that nobody reads
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; too much of what is of no use ends the connection."""
        if self.is_idle:  # a head begins, which must be whole in time
            self._start_clock()
        self._unused_bytes += len(data)
        super().data_received(data)  # the parser calls the `on_` methods
        limit = self._settings.max_header_bytes
        if self.is_idle and not self._in_head:  # the rest of a body that was answered early
            limit = SURPLUS_FACTOR * self._settings.max_body_bytes
        if self._unused_bytes > limit:
            self._end_connection(431)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is whole."""
        super().on_headers_complete()
        self._in_head, self._unused_bytes = False, 0
        self._stop_clock()

    def on_body(self, body: bytes) -> None:
        """A part of a body came, of which no use is made after an early answer."""
        if not self.is_idle:
            self._unused_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._unused_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is whole; the rest of a body, if there is any, must come in time."""
        super().on_response_complete()
        if self.cycle.more_body:
            self._start_clock()

    def pause_writing(self) -> None:
        """The client does not read; it gets some time to go on."""
        super().pause_writing()
        seconds = self._settings.write_timeout
        self._write_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """End a connection on which something came that is not HTTP."""
        self._end_connection(400)

    def _start_clock(self) -> None:
        """Limit the time until a head, or the rest of a body, is whole; a running clock goes on."""
        if self._read_timer is None:
            seconds = self._settings.read_timeout
            self._read_timer = self.loop.call_later(seconds, self._end_connection, 408)

    def _stop_clock(self) -> None:
        """What was waited for has come; the next head has the whole time again."""
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _end_connection(self, status: int) -> None:
        """Close the connection; the client gets a status if no answer has begun."""
        # an idle connection has no request that a status could answer, unless its head has begun
        can_tell = self._in_head if self.is_idle else not self.cycle.response_started
        if can_tell:
            head = b"connection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head)
            self.transport.close()
        else:
            self.transport.abort()
