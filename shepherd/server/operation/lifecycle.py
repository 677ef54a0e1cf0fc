"""The state of a running server: whether it takes requests, and how it is reloaded and ended."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from shepherd.server.errors import ApiError
from shepherd.server.responses import ErrorResponse

logger = logging.getLogger("shepherd.server")

RETRY_SECONDS = 10
"""The time after which clients of a draining server should try again."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The settings that a reload has changed, and the changed ones that need a restart."""

    changed: Sequence[str] = ()
    need_restart: Sequence[str] = ()


Reload: TypeAlias = Callable[[], Awaitable[Reloaded]]
"""Reads the settings again; raises ShepherdError, and then has changed nothing."""


def _nothing() -> None:
    """There is no server yet."""


def _none() -> int:
    return 0


@dataclass(slots=True)
class Lifecycle:
    """One server's state; `running` tells how many requests it answers.

    `stop` ends the server after its running requests, and `on_stop` work that would never end by
    itself. `listeners` hear of states.
    """

    draining: bool = False
    stopping: bool = False
    addresses: Sequence[str] = ()
    reload: Reload | None = None
    running: Callable[[], int] = _none
    stop: Callable[[float | None], None] = lambda _seconds: None
    on_stop: Callable[[], None] = _nothing
    started: float = field(default_factory=time.monotonic)
    listeners: list[Callable[[str], None]] = field(default_factory=list[Callable[[str], None]])
    _reloading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def uptime(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self.started

    @property
    def pid(self) -> int:
        """The process."""
        return os.getpid()

    def drain(self) -> None:
        """Take no new requests; running ones go on."""
        if not self.draining:
            self.draining = True
            logger.info("Draining: new requests are refused, %d run", self.running())

    def begin_stop(self, seconds: float | None = None) -> None:
        """Drain, and end the server when nothing runs, at the latest after `seconds`.

        None is the time of the settings.
        """
        self.draining = self.stopping = True
        self.announce("stopping")
        self.stop(seconds)
        self.on_stop()

    async def begin_reload(self) -> Reloaded:
        """Read settings, keys and aliases again; raises ShepherdError, and nothing has changed."""
        if self.reload is None:
            raise ApiError(501, "This server can't be reloaded; start it again.", "not_implemented")
        async with self._reloading:
            self.announce("reloading")
            try:
                reloaded = await self.reload()
            finally:
                self.announce("ready")
        changed = ", ".join(reloaded.changed) or "nothing changed"
        logger.info("Reloaded the settings: %s", changed)
        if reloaded.need_restart:
            logger.warning("These changes need a restart: %s", ", ".join(reloaded.need_restart))
        return reloaded

    def announce(self, state: str) -> None:
        """Tell the listeners a state: `ready`, `reloading` or `stopping`."""
        for listener in self.listeners:
            listener(state)


class DrainGate:
    """Middleware that refuses new work while the server drains.

    Reading continues, and so does what running requests need: approvals and cancelling.
    """

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle) -> None:
        self._app = app
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._lifecycle.draining or not _is_work(scope):
            await self._app(scope, receive, send)
            return
        message = "The server takes no new requests at the moment; try again later."
        headers = {"Retry-After": str(RETRY_SECONDS)}
        error = ApiError(503, message, "server_draining", headers=headers)
        await ErrorResponse(error)(scope, receive, send)


def _is_work(scope: Scope) -> bool:
    if scope["method"] in ("GET", "OPTIONS", "DELETE"):
        return False
    parts = scope["path"].split("/")
    return not (parts[1] == "admin" or "approvals" in parts or parts[-1] == "cancel")
