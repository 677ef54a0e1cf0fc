"""Uvicorn with our signals, and with an end that waits for running requests."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial

import uvicorn

from shepherd.errors import ShepherdError
from shepherd.server.app import ServerApp
from shepherd.server.errors import ApiError
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.deadline import TimedProtocol
from shepherd.server.transport.tls import ServerTls
from shepherd.tasks import end_tasks
from shepherd.tools.text import pluralize

logger = logging.getLogger("shepherd.server")


def _nothing() -> None:
    """Do nothing when the server begins to end."""


class DrainingServer(uvicorn.Server):
    """Uvicorn that waits for running requests at the first signal and not at the second."""

    def __init__(
        self,
        app: ServerApp,
        drain: Callable[[], None] = _nothing,
        *,
        settings: ServerSettings,
        tls: ServerTls | None = None,
    ) -> None:
        """`drain` ends work that would never end by itself, once the server begins to end."""
        self._lifecycle = app.context.lifecycle
        self._metrics = app.context.monitor.metrics
        self._drain = drain
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
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
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
        await self.end_requests()
        await end_tasks(loading)
        if not loading.cancelled():
            await loading

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections; those of the Unix socket are not encrypted."""
        loop, state = asyncio.get_running_loop(), self.server_state
        protocol = partial(TimedProtocol, self.config, state, self._settings, self._metrics)
        self.servers = []
        for sock in sockets or []:
            context = None
            if self._tls is not None and sock.family != socket.AF_UNIX:
                context = self._tls.context
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
        seconds = self._lifecycle.stop_seconds
        if seconds is None:
            seconds = self._settings.shutdown_seconds or None  # 0: without a limit
        if self.server_state.tasks and not self.force_exit:
            requests = pluralize(len(self.server_state.tasks), "running request")
            logger.info("Waiting for %s; a second signal ends all", requests)
        self._drain()
        if seconds is not None:
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
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        stop, reload = self._on_signal, self._on_hangup
        handlers = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGHUP: reload}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _note_loaded(self, loading: "asyncio.Future[None]") -> None:
        if not loading.cancelled() and loading.exception() is not None:
            self.end(force=True)

    def _on_signal(self) -> None:
        if self.should_exit or self._lifecycle.stopping:
            self.end(force=True)
        else:
            self._lifecycle.begin_stop()

    def _on_hangup(self) -> None:
        """Reload, unless the terminal of the log was closed."""
        if self._has_terminal and not os.isatty(sys.stderr.fileno()):
            self._lifecycle.begin_stop()
            return
        task = asyncio.get_running_loop().create_task(self._reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        try:
            await self._lifecycle.begin_reload()
        except (ApiError, ShepherdError) as error:
            logger.error("Nothing was changed: %s", error)
