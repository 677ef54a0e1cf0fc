"""The state of a running server: whether it takes requests, and how it is reloaded and ended."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from msgspec import Struct, field

from shepherd.messages import JsonObject
from shepherd.server.access.paths import ADMIN_PREFIX, METRICS_PATH, MODEL_LISTS, OPEN_PATHS
from shepherd.server.errors import ApiError
from shepherd.storage.postgres import DatabaseError, PostgresServer
from shepherd.tasks import end_tasks

logger = logging.getLogger("shepherd.server")

RETRY_SECONDS = 10
"""The time after which clients of a draining server should try again."""

LOADING_SECONDS = 2
"""The time after which clients of a server that loads its first model should try again."""

_STATES = frozenset({*OPEN_PATHS, *MODEL_LISTS, METRICS_PATH, "/", "/api/version", "/openapi.json"})


class Reloaded(Struct, frozen=True):
    """The settings that a reload has changed, and the changed ones that need a restart."""

    changed: Sequence[str] = ()
    need_restart: Sequence[str] = ()


Reload: TypeAlias = Callable[[], Awaitable[Reloaded]]
"""Reads the settings again; raises ShepherdError, and then has changed nothing."""


class Lifecycle(Struct):
    """One server's state.

    `tell` hears of it: `loading`, `ready`, `reloading` or `stopping`. The server needs its
    `database`, if it has one. A server that no request can end says in `stop_advice` how it ends.
    It is `loading` until its first model is loaded. Once it is `stopping`, running requests have
    `stop_seconds`, None for those of the settings. `log` has the last lines of the server's log.
    `started` is a time of `time.monotonic`.
    """

    tell: Callable[[str], None] = lambda _state: None
    reload: Reload | None = None
    database: PostgresServer | None = None
    stop_advice: str = ""
    log: Sequence[JsonObject] = ()
    addresses: Sequence[str] = ()
    loading: bool = False
    draining: bool = False
    stopping: bool = False
    stop_seconds: float | None = None
    started: float = field(default_factory=time.monotonic)
    _reloading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def begin_load(self) -> None:
        """Take no work until the first model is loaded."""
        self.loading = True
        self.tell("loading")

    def finish_load(self) -> None:
        """Take work from now on."""
        self.loading = False
        self.tell("ready")

    async def database_answers(self, grace: float) -> bool:
        """Whether the database has answered within `grace` seconds; true if there is none."""
        if self.database is None:
            return True
        try:
            await asyncio.to_thread(self.database.check)
        except DatabaseError as error:
            logger.error("The database does not answer: %s", error)
            return time.monotonic() - self.database.answered < grace
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
        self.stop_seconds = seconds
        self.tell("stopping")

    async def begin_reload(self) -> Reloaded:
        """Read settings, keys and aliases again; raises ShepherdError, and nothing has changed."""
        if self.reload is None:
            raise ApiError(501, "This server can't be reloaded; start it again.", "not_implemented")
        if self.loading:
            raise _loading_error()
        async with self._reloading:
            self.tell("reloading")
            try:
                reloaded = await self.reload()
            finally:  # also after an error, with the earlier settings
                self.tell("ready")
        changed = ", ".join(reloaded.changed) or "no setting changed"
        logger.info("Reloaded the settings: %s", changed)
        if reloaded.need_restart:
            logger.warning("These changes need a restart: %s", ", ".join(reloaded.need_restart))
        return reloaded

    def refusal(self, method: str, path: str) -> ApiError | None:
        """Why a request is not served now: the first model loads, or no new work is taken.

        The state of the server, and the lists of its models, can always be read. During a drain all
        reading continues, and so does what running requests need: approvals and cancelling.
        """
        if self.draining and _is_work(method, path):
            message = "The server takes no new requests at the moment; try again later."
            headers = {"Retry-After": str(RETRY_SECONDS)}
            return ApiError(503, message, "server_draining", headers=headers)
        if self.loading and not _needs_no_model(method, path):
            return _loading_error()
        return None


def _loading_error() -> ApiError:
    """The refusal of work while the first model loads, in the words that llama.cpp's clients know.

    It is a busy server's: clients try again by themselves.
    """
    headers = {"Retry-After": str(LOADING_SECONDS)}
    return ApiError(503, "Loading model; try again later.", "model_loading", headers=headers)


def _needs_no_model(method: str, path: str) -> bool:
    """Whether a request can be served before the first model is loaded."""
    if path.startswith(f"{ADMIN_PREFIX}/"):
        return True
    of_a_model = any(path.startswith(f"{name}/") for name in MODEL_LISTS)
    return method in ("GET", "OPTIONS") and (path in _STATES or of_a_model)


def _is_work(method: str, path: str) -> bool:
    """Whether a drain refuses the request.

    It lets pass what steers the server, and what running requests need to go on or to end.
    """
    if method in ("GET", "OPTIONS", "DELETE"):
        return False
    parts = path.split("/")
    steers = path.startswith(f"{ADMIN_PREFIX}/")
    return not (steers or "approvals" in parts or parts[-1] == "cancel")


class Notifier:
    """Sends states to the socket that systemd has named; without one it does nothing."""

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        """With `watchdog_seconds`, systemd ends a server that is silent for so long."""
        # systemd writes @ for the zero byte with which the name of an abstract socket begins
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_seconds = watchdog_seconds

    @classmethod
    def from_env(cls, env: MutableMapping[str, str]) -> "Notifier":
        """The notifier of this process; its variables leave `env`, as they are not for children."""
        address = env.pop("NOTIFY_SOCKET", "")
        microseconds = env.pop("WATCHDOG_USEC", "")
        # another number is that of a parent that has left its variables to us
        is_ours = env.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        seconds = int(microseconds) / 1e6 if microseconds.isdigit() and is_ours else 0.0
        return cls(address, seconds)

    def send(self, *lines: str) -> None:
        """Send `NAME=VALUE` lines; a failure is logged, as systemd may end the server for it."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)  # the event loop must not wait for systemd
                sock.connect(self._address)
                sock.send("\n".join(lines).encode())
        except OSError as error:
            logger.warning("systemd can't be told %s: %s", lines[0], error)

    def send_state(self, state: str) -> None:
        """Send a state of `Lifecycle`; while it is `loading`, systemd waits for READY=1."""
        if state == "reloading":  # systemd wants the time with it, in microseconds
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self.send("RELOADING=1", f"MONOTONIC_USEC={now}")
        elif state != "loading":
            self.send("STOPPING=1" if state == "stopping" else "READY=1")

    @asynccontextmanager
    async def beating(self) -> AsyncGenerator[None]:
        """Send signs of life, if systemd waits for them."""
        beats = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            await end_tasks(beats)

    async def _beat(self) -> None:
        """Send signs of life twice in each period, until it is cancelled; at once over if none.

        It runs on the event loop, so that a blocked loop is silent too.
        """
        while self._address and self._watchdog_seconds > 0:
            self.send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / 2)
