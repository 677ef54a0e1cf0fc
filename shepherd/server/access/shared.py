"""The limits of keys for all servers of one database: PostgreSQL, an SQLite file, or memory."""

import asyncio
import json
import logging
import secrets
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from shepherd.database import DatabaseFile, MemoryDatabase
from shepherd.errors import ShepherdError
from shepherd.server.access import keys, limits, shared_keys, usage
from shepherd.server.access.key import ApiKey, KeyLimits
from shepherd.server.access.shared_keys import DatabaseKeys, repeat
from shepherd.server.access.usage import UsageError, UsageStore
from shepherd.server.errors import ApiError
from shepherd.storage.postgres import PostgresDatabase, PostgresServer
from shepherd.storage.rows import Database, Rows, close_garbage

logger = logging.getLogger(__name__)

MIGRATIONS = ("CREATE TABLE limits (key TEXT PRIMARY KEY, state TEXT NOT NULL)",)

LIMITS_NAME = "limits.sqlite"
"""The file of limits, which all servers of a user share."""

LEASE_SECONDS = 60.0
"""Tokens that a server holds count for this time after its last word."""

THREADS = 8
RENEW_SECONDS = 15.0
"""The interval in which a server confirms the tokens that it holds; see `LEASE_SECONDS`."""

FLUSH_SECONDS = 1.0
"""The interval of attempts to write what could not be written."""

_RETRY_LATER = {"Retry-After": "2"}
_UNAVAILABLE = "The limits of this key can't be checked at the moment; the server's log says why."


class LimitsError(ShepherdError):
    """The limits can't be read or written; the message names the database."""


def local_clock(_rows: Rows) -> float:
    """The time of this machine, in seconds since 1970."""
    return time.time()


def database_clock(rows: Rows) -> float:
    """The time of PostgreSQL, which is the same for all servers."""
    statement = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"
    return float(rows.execute(statement).fetchone()[0])


class KeyWindows:
    """The row of one key, in a transaction that locks the key: what was used, and what is held.

    What servers hold is reserved in `limiter`, whose clock begins with the time of the transaction.
    """

    def __init__(self, rows: Rows, key: str, clock: Callable[[Rows], float]) -> None:
        """Read the row; what a server holds counts no more if that was silent for too long."""
        row = rows.execute("SELECT state FROM limits WHERE key = ?", (key,)).fetchone()
        state: dict[str, Any] = {} if row is None else json.loads(row[0])
        # when two servers' clocks differ, the time of the key must not go back
        self._time = max(clock(rows), state.get("latest", 0.0))
        self._key = key
        # by server: the tokens that it holds, and until when that counts
        self._held: dict[str, tuple[int, float]] = {
            server: (amount, until)
            for server, (amount, until) in state.get("held", {}).items()
            if until > self._time
        }
        self.limiter = limits.Limiter(self._time)
        for name, amounts in state.get("windows", {}).items():  # as `save` writes them
            resource, _, seconds = name.partition(":")
            window = self.limiter.windows[limits.Resource(resource), int(seconds)]
            window.restore(amounts, self._time)
        for amount, _ in self._held.values():
            self.limiter.reserve(amount)

    def hold(self, server: str, amount: int) -> None:
        """Replace the tokens that a server holds."""
        earlier, _ = self._held.pop(server, (0, 0.0))
        if amount:
            self._held[server] = amount, self._time + LEASE_SECONDS
        self.limiter.reserve(amount - earlier)

    def save(self, rows: Rows) -> None:
        """Write the row; the windows are called `tokens:60` there."""
        windows = {
            f"{resource}:{seconds}": window.amounts()
            for (resource, seconds), window in self.limiter.windows.items()
        }
        state = {"latest": self._time, "held": self._held, "windows": windows}
        rows.execute(
            "INSERT INTO limits VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET state = excluded.state",
            (self._key, json.dumps(state)),
        )


class _KeyState(Struct):
    """What this server holds of one key; `renewed` is when it last confirmed that.

    `settled` has the reserved and the used tokens of requests that have ended, until they are
    written. It is a list, and no sum, because the event loop adds to it while a thread has `lock`.
    """

    held: int = 0
    settled: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    renewed: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_due(self) -> bool:
        """Whether there is something to write, or to confirm."""
        must_renew = time.monotonic() - self.renewed > RENEW_SECONDS
        return bool(self.settled) or (self.held > 0 and must_renew)


class SharedLimits:
    """What keys may still use; for one event loop. One transaction decides about each request.

    Held tokens count for all servers until they are settled, or until their server is silent for
    too long. What is settled while the database can't be used is written later. SQLite allows only
    one of the `threads`.
    """

    def __init__(
        self,
        database: Database,
        store: UsageStore | None = None,
        clock: Callable[[Rows], float] = local_clock,
        threads: int = THREADS,
    ) -> None:
        self.id = secrets.token_hex(8)  # of this server in the rows
        self._database = database
        self._store = store
        self._clock = clock
        self._threads = ThreadPoolExecutor(threads, "limits")
        self._states: defaultdict[str, _KeyState] = defaultdict(_KeyState)
        self._last_limiters: dict[str, limits.Limiter] = {}
        """What counts against each key, as its last transaction has left it."""
        self._was_failure_logged = False  # since a write has worked
        self._is_confirming = False
        """Whether the thread that confirms held tokens was started."""
        closing = weakref.finalize(self, close_garbage, self._threads, self._database)
        closing.atexit = False  # at the exit the threads may still write

    async def count_request(self, key: ApiKey) -> None:
        """Count a request for all servers; raises ApiError if a limit is reached, or not known."""
        if self._store is not None:
            self._store.note_use(key.name, int(time.time()))
        if key.limits == KeyLimits():  # without limits, no transaction is needed
            return

        def count(windows: KeyWindows) -> int:
            windows.limiter.count_request(key)
            return 0  # tokens that are held for it

        await self._in_transaction(key, count)

    async def reserve_tokens(self, key: ApiKey, needed: int, wished: int) -> int:
        """Hold `wished` tokens, or as many as are left, but at least `needed`.

        Raises ApiError if they are not left, or if that can't be checked.
        """

        def reserve(windows: KeyWindows) -> int:
            return windows.limiter.grant_tokens(key, needed, wished)  # `hold` reserves them

        return await self._in_transaction(key, reserve)

    def settle_tokens(self, key: ApiKey, reserved: int, used: int) -> None:
        """Replace held tokens by those that were used: here at once, in the database soon."""
        if not key.limits.counts_tokens:
            return
        if key.name in self._last_limiters:  # for the headers of the next answers
            self._last_limiters[key.name].settle(limits.Resource.TOKENS, reserved, used)
        self._settle(key.name, reserved, used)

    def headers(self, key: ApiKey) -> dict[str, str]:
        """The state of the limits, without what other servers counted since the last request."""
        limiter = self._last_limiters.get(key.name)
        return {} if limiter is None else limiter.headers(key)

    def write_waiting(self) -> None:
        """Begin to write what is settled, and to confirm what is held."""
        for name, state in list(self._states.items()):
            if state.is_due:
                with suppress(RuntimeError):  # the process ends
                    self._threads.submit(self._write, name)

    def flush(self) -> None:
        """Wait until all that is settled is written, or has failed."""
        for work in [self._threads.submit(self._write, name) for name in list(self._states)]:
            work.result()

    async def _in_transaction(self, key: ApiKey, work: Callable[[KeyWindows], int]) -> int:
        """Do `work` in a transaction; it returns the tokens that this server holds in addition."""
        if not self._is_confirming:  # a server whose keys have no limits needs no thread
            self._is_confirming = True
            repeat(self, SharedLimits.write_waiting, FLUSH_SECONDS)
        running = self._threads.submit(self._transact, key.name, work)
        try:
            amount, limiter = await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            # the thread goes on, and nobody would give back what it reserves
            running.add_done_callback(partial(self._release, key))
            raise
        except LimitsError as error:
            logger.error("Requests of keys with limits are refused: %s", error)
            raise ApiError(
                503, _UNAVAILABLE, "limits_unavailable", headers=dict(_RETRY_LATER)
            ) from error
        self._last_limiters[key.name] = limiter
        return amount

    def _transact(self, name: str, work: Callable[[KeyWindows], int]) -> tuple[int, limits.Limiter]:
        """Write what is settled, and do `work`, in one transaction; runs in a thread.

        `work` returns the tokens that it reserves, which are held until they are settled.
        """
        state = self._states[name]
        with state.lock:
            settled = tuple(state.settled)
            held = state.held - sum(reserved for reserved, _ in settled)

            # it may run again after a failure, so the state of this server changes after it
            def change(rows: Rows) -> tuple[int, limits.Limiter]:
                windows = KeyWindows(rows, name, self._clock)
                used = sum(used for _, used in settled)
                windows.limiter.settle(limits.Resource.TOKENS, reserved=0, used=used)
                windows.hold(self.id, held)  # before the work, which may use what was given back
                amount = work(windows)
                windows.hold(self.id, held + amount)
                windows.save(rows)
                return amount, windows.limiter

            amount, limiter = self._database.run(change, lock=name)
            state.held = held + amount
            del state.settled[: len(settled)]  # what was added meanwhile stays
            state.renewed = time.monotonic()
            return amount, limiter

    def _settle(self, name: str, reserved: int, used: int) -> None:
        """Note what a request has used of what was held for it, and begin to write that."""
        self._states[name].settled.append((reserved, used))
        self._threads.submit(self._write, name)

    def _release(self, key: ApiKey, work: "Future[tuple[int, limits.Limiter]]") -> None:
        """Settle a reservation whose request has ended before it was made."""
        if not work.cancelled() and work.exception() is None:
            self._settle(key.name, work.result()[0], 0)

    def _write(self, name: str) -> None:
        """Runs in a thread; what fails stays for the next attempt."""
        if not self._states[name].is_due:  # another transaction of the key has written it
            return
        try:
            self._transact(name, lambda _windows: 0)  # only what each transaction does first
        except LimitsError as error:
            if not self._was_failure_logged:  # once, until a write works again
                logger.error("What keys use is not written: %s", error)
            self._was_failure_logged = True
        else:
            self._was_failure_logged = False


def keys_in(server: PostgresServer) -> DatabaseKeys:
    """The keys in a database."""
    return DatabaseKeys(key_database_in(server))


def key_database_in(server: PostgresServer) -> PostgresDatabase:
    """The tables of the keys in a database."""
    return PostgresDatabase(server, "keys", shared_keys.MIGRATIONS, keys.KeyStoreError)


def usage_in(server: PostgresServer) -> PostgresDatabase:
    """The usage in a database."""
    return PostgresDatabase(server, "usage", usage.MIGRATIONS, UsageError)


def limits_in(server: PostgresServer) -> PostgresDatabase:
    """What counts against the limits of keys in a database."""
    return PostgresDatabase(server, "limits", MIGRATIONS, LimitsError)


def limits_in_memory() -> SharedLimits:
    """Limits that are forgotten at the end of the process."""
    return SharedLimits(MemoryDatabase(MIGRATIONS), threads=1)


def open_limits(usage_file: Path) -> DatabaseFile:
    """What counts against the limits of keys, in a file beside that of their usage."""
    on_damage = partial(logger.error, "The file of limits was damaged (%s). The old file is %s")
    return DatabaseFile(usage_file.with_name(LIMITS_NAME), MIGRATIONS, on_damage, LimitsError)
