"""The state of a running server: whether it takes requests, and how it is reloaded and ended."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from shepherd.server.access.paths import ADMIN_PREFIX, METRICS_PATH, MODEL_LISTS, OPEN_PATHS
from shepherd.server.errors import ApiError
from shepherd.server.responses import ErrorResponse
from shepherd.storage.postgres import DatabaseError, PostgresServer

logger = logging.getLogger("shepherd.server")

RETRY_SECONDS = 10
"""The time after which clients of a draining server should try again."""

LOADING_SECONDS = 2
"""The time after which clients of a server that loads its first model should try again."""

_STATES = frozenset({*OPEN_PATHS, *MODEL_LISTS, METRICS_PATH, "/", "/api/version"})


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
    itself. `listeners` hear of states. It is `loading` until its first model is loaded. The server
    needs its `database`, if it has one. A server that no request can end says in `stop_advice` how
    it ends.
    """

    loading: bool = False
    draining: bool = False
    stopping: bool = False
    addresses: Sequence[str] = ()
    reload: Reload | None = None
    database: PostgresServer | None = None
    running: Callable[[], int] = _none
    stop: Callable[[float | None], None] = lambda _seconds: None
    on_stop: Callable[[], None] = _nothing
    stop_advice: str = ""
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

    def begin_load(self) -> None:
        """Take no work until the first model is loaded."""
        self.loading = True
        self.announce("loading")

    def finish_load(self) -> None:
        """Take work from now on."""
        self.loading = False
        self.announce("ready")

    async def database_answers(self) -> bool:
        """Whether the database answers; true if there is none."""
        if self.database is None:
            return True
        try:
            await asyncio.to_thread(self.database.check)
        except DatabaseError as error:
            logger.error("Not ready: %s", error)
            return False
        return True

    def drain(self) -> None:
        """Take no new requests; running ones go on."""
        if not self.draining:
            self.draining = True
            logger.info("Draining: new requests are refused, running ones go on")

    def begin_stop(self, seconds: float | None = None) -> None:
        """Drain, and end the server when nothing runs, at the latest after `seconds`.

        None is the time of the settings. Raises ApiError if no request can end the server.
        """
        if self.stop_advice:
            message = f"This server can't be ended by a request: {self.stop_advice}"
            raise ApiError(501, message, "not_implemented")
        self.draining = self.stopping = True
        self.announce("stopping")
        self.stop(seconds)
        self.on_stop()

    async def begin_reload(self) -> Reloaded:
        """Read settings, keys and aliases again; raises ShepherdError, and nothing has changed."""
        if self.reload is None:
            raise ApiError(501, "This server can't be reloaded; start it again.", "not_implemented")
        if self.loading:
            raise loading_error()
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
        """Tell the listeners a state: `loading`, `ready`, `reloading` or `stopping`."""
        for listener in self.listeners:
            listener(state)


def loading_error() -> ApiError:
    """The refusal of work while the first model loads, in the words that llama.cpp's clients know.

    It is a busy server's: clients try again by themselves.
    """
    headers = {"Retry-After": str(LOADING_SECONDS)}
    return ApiError(503, "Loading model; try again later.", "model_loading", headers=headers)


class WorkGate:
    """Middleware that refuses work while the first model loads, and new work during a drain.

    The state of the server, and the lists of its models, can always be read. During a drain all
    reading continues, and so does what running requests need: approvals and cancelling.
    """

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle) -> None:
        self._app = app
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (error := self._refusal(scope)) is None:
            await self._app(scope, receive, send)
            return
        await ErrorResponse(error)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        if self._lifecycle.draining and _is_work(scope):
            message = "The server takes no new requests at the moment; try again later."
            headers = {"Retry-After": str(RETRY_SECONDS)}
            return ApiError(503, message, "server_draining", headers=headers)
        if self._lifecycle.loading and not _needs_no_model(scope):
            return loading_error()
        return None


def _needs_no_model(scope: Scope) -> bool:
    path: str = scope["path"]
    if path.startswith(f"{ADMIN_PREFIX}/"):
        return True
    reads = scope["method"] in ("GET", "OPTIONS")
    return reads and (path in _STATES or any(path.startswith(f"{name}/") for name in MODEL_LISTS))


def _is_work(scope: Scope) -> bool:
    if scope["method"] in ("GET", "OPTIONS", "DELETE"):
        return False
    parts = scope["path"].split("/")
    return not (parts[1] == "admin" or "approvals" in parts or parts[-1] == "cancel")
