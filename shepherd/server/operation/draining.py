"""Uvicorn with our connections, our signals, and an end that waits for running requests."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import cast

import uvicorn
from fastapi import FastAPI

from shepherd.errors import ShepherdError
from shepherd.server.api import ErrorShapes
from shepherd.server.errors import ApiError
from shepherd.server.operation.lifecycle import Lifecycle
from shepherd.server.operation.metrics import Metrics
from shepherd.server.operation.request_log import RequestLog
from shepherd.server.operation.traces import Traces
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.handshake import TlsHandshake
from shepherd.server.transport.protocol import HttpProtocol
from shepherd.server.transport.table import ConnectionTable
from shepherd.server.transport.tls import ServerTls
from shepherd.tasks import end_tasks
from shepherd.tools.text import pluralize

logger = logging.getLogger("shepherd.server")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DATE_SECONDS = 1.0
"""How often the Date header is renewed."""

_GRACE_SECONDS = 0.1
"""How long a forced end waits for what is open."""

_POLL_SECONDS = 0.005


def _nothing() -> None:
    """Do nothing at the first signal."""


class DrainingServer(uvicorn.Server):
    """Uvicorn that waits for running requests at the first signal and not at the second."""

    def __init__(
        self,
        app: FastAPI,
        announcement: str = "",
        drain: Callable[[], None] = _nothing,
        *,
        settings: ServerSettings,
        tls: ServerTls | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`announcement` is logged once connections are accepted and signals are handled.

        With `load`, the models are loaded then, and its result is logged instead; requests are
        refused meanwhile. If it fails, the server ends, and `serve` raises its error.
        """
        self.load: Callable[[], Awaitable[str]] | None = None
        self._announcement = announcement
        self._loading: asyncio.Task[None] | None = None
        self._lifecycle = lifecycle = cast(Lifecycle, app.state.lifecycle)
        lifecycle.running = lambda: len(self.server_state.tasks)
        lifecycle.stop = self.begin_end
        lifecycle.on_stop = drain
        self._reloads = set[asyncio.Task[None]]()
        self._has_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._ended = asyncio.Event()
        self._settings = settings
        self._tls = tls
        self._errors = cast(ErrorShapes, app.state.errors)
        metrics = cast(Metrics, app.state.metrics)
        metrics.connections = lambda: len(self._table)
        self._log = RequestLog(app, metrics, traces)
        self._table = ConnectionTable(settings, self._log.note_refusal)
        super().__init__(
            uvicorn.Config(
                self._log,
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then log the announcement."""
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                self._protocol if sock.family == socket.AF_UNIX else self._tcp_protocol,
                sock=sock,
                backlog=self.config.backlog,
            )
            for sock in sockets or []
        ]
        self.started = True
        if self.load is None:
            self._lifecycle.announce("ready")
            logger.info("%s", self._announcement)
            return
        self._lifecycle.begin_load()
        self._loading = loop.create_task(self._finish_load(self.load))
        self._loading.add_done_callback(self._end_if_failed)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the end; raises the error that kept the models from loading."""
        await super().serve(sockets)
        if self._loading is None:
            return
        await end_tasks(self._loading)
        if not self._loading.cancelled() and (error := self._loading.exception()) is not None:
            raise error

    async def _finish_load(self, load: Callable[[], Awaitable[str]]) -> None:
        announcement = await load()
        self._lifecycle.finish_load()
        logger.info("%s", announcement)

    def _end_if_failed(self, loading: asyncio.Task[None]) -> None:
        if not loading.cancelled() and loading.exception() is not None:
            self.end(force=True)

    async def main_loop(self) -> None:
        """Wait for `end`; uvicorn would look for it ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _DATE_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and wait for the open ones until the end is forced."""
        for listener in (*self.servers, *(sockets or [])):
            listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        grace = asyncio.get_running_loop().time() + _GRACE_SECONDS
        while state.connections or state.tasks:
            if self.force_exit and asyncio.get_running_loop().time() >= grace:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def end(self, *, force: bool = False) -> None:
        """Stop to serve; running requests go on unless the end is forced."""
        self.should_exit = True
        self.force_exit = force
        self._ended.set()

    def begin_end(self, seconds: float | None = None) -> None:
        """Stop to serve; running requests end after `seconds`, 0 for at once.

        None is the time of the settings, which is without a limit if it is 0.
        """
        limit = self._settings.shutdown_seconds or None if seconds is None else seconds
        running = len(self.server_state.tasks)
        if running and not self.should_exit:
            requests = pluralize(running, "running request")
            logger.info("Waiting for %s; a second signal ends all", requests)
        self.end()
        if limit is not None:
            asyncio.get_running_loop().call_later(limit, partial(self.end, force=True))

    def _tcp_protocol(self) -> asyncio.Protocol:
        if self._tls is None:
            return self._protocol()
        return TlsHandshake(self._tls.context, self._settings, self._table, self._protocol)

    def _protocol(self) -> asyncio.Protocol:
        return HttpProtocol(
            self.config,
            self.server_state,
            self.lifespan.state,
            settings=self._settings,
            table=self._table,
            errors=self._errors,
        )

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle the signals here; uvicorn would raise them again, and skip our clean-up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        try:
            yield
        finally:
            for number in (*_SIGNALS, signal.SIGHUP):
                loop.remove_signal_handler(number)

    async def end_requests(self) -> None:
        """Cancel the requests that still run."""
        await end_tasks(*self._reloads)
        await end_tasks(*self.server_state.tasks)

    def _on_signal(self) -> None:
        if self.should_exit:
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
