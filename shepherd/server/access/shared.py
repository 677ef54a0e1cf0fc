"""The limits of keys for all servers of one database: PostgreSQL, an SQLite file, or memory."""

import asyncio
import logging
import math
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

from msgspec import Struct, field, json

from shepherd.database import DatabaseFile, MemoryDatabase
from shepherd.errors import ShepherdError
from shepherd.server.access import keys, limits, shared_keys, usage
from shepherd.server.access.key import ApiKey, KeyLimits
from shepherd.server.access.shared_keys import KEYS_GRACE, DatabaseKeys, repeat
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

MAX_AHEAD_SECONDS = 120.0
"""By so much clocks of servers may differ; one that is further ahead is taken to be wrong."""

THREADS = 8
RENEW_SECONDS = 15.0
"""The interval in which a server confirms the tokens that it holds; see `LEASE_SECONDS`."""

FLUSH_SECONDS = 1.0
"""The interval of attempts to write what could not be written."""

_RETRY_LATER = {"Retry-After": "2"}
_UNAVAILABLE = "The limits of this key can't be checked at the moment; the server's log says why."


class LimitsError(ShepherdError):
    """The limits can't be read or written; the message names the database."""


_LOCK = "INSERT INTO limits VALUES (?, '{}') ON CONFLICT (key) DO UPDATE SET state = limits.state"
_READ = "SELECT state FROM limits WHERE key = ?"
_WRITE = "UPDATE limits SET state = ? WHERE key = ?"
_EXCHANGE = f"{_WRITE} AND state = ?"
_DATABASE_TIME = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"


class KeyWindows:
    """The row of one key at a moment: what was used, and what is held.

    What servers hold is reserved in `limiter`, whose clock begins with the moment.
    """

    def __init__(self, row: str, moment: float) -> None:
        """Read the row; what a server holds counts no more if that was silent for too long."""
        state: dict[str, Any] = json.decode(row)
        # when two servers' clocks differ a little, the time of the key must not go back; a clock
        # that was far ahead was wrong, and what was used by it counts as used just now
        latest = max(moment, state.get("latest", 0.0))
        ahead = latest - moment if latest - moment > MAX_AHEAD_SECONDS else 0.0
        self._time = latest - ahead
        # by server: the tokens that it holds, and until when that counts
        self._held: dict[str, tuple[int, float]] = {
            server: (amount, until - ahead)
            for server, (amount, until) in state.get("held", {}).items()
            if until - ahead > self._time
        }
        self.limiter = limits.Limiter(self._time)
        for name, amounts in state.get("windows", {}).items():  # as `save` writes them
            resource, _, seconds = name.partition(":")
            window = self.limiter.windows[limits.Resource(resource), int(seconds)]
            slots = int(ahead * limits.SLOTS // int(seconds))
            window.restore([(slot - slots, used) for slot, used in amounts], self._time)
        for amount, _ in self._held.values():
            self.limiter.reserve(amount)

    def hold(self, server: str, amount: int) -> None:
        """Replace the tokens that a server holds."""
        earlier, _ = self._held.pop(server, (0, 0.0))
        if amount:
            self._held[server] = amount, self._time + LEASE_SECONDS
        self.limiter.reserve(amount - earlier)

    def row(self) -> str:
        """The row to write; the windows are called `tokens:60` there."""
        windows = {
            f"{resource}:{seconds}": window.amounts()
            for (resource, seconds), window in self.limiter.windows.items()
        }
        state = {"latest": self._time, "held": self._held, "windows": windows}
        return json.encode(state).decode()


class _Change(Struct, frozen=True):
    """What is held no more (or, if negative, in addition), and what was used at a moment."""

    released: int
    tokens: int = 0
    requests: int = 0
    moment: float = field(default_factory=time.monotonic)


class _KeyState(Struct):
    """What this server holds of one key; `renewed` is when it last confirmed that.

    `settled` has what requests have changed, until it is written. It is a list, and no sum, because
    the event loop adds to it while a thread has `lock`.

    `row` is what this server has last written, and `is_alone` whether no other has written since
    the time before. `row_read` is when it was read from the database, whose clock was `ahead` of
    ours.
    """

    held: int = 0
    settled: list[_Change] = field(default_factory=list[_Change])
    renewed: float = 0.0
    row: str = ""
    is_alone: bool = True
    row_read: float = -math.inf
    ahead: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_due(self) -> bool:
        """Whether there is something to write, or to confirm."""
        must_renew = time.monotonic() - self.renewed > RENEW_SECONDS
        return bool(self.settled) or (self.held > 0 and must_renew)


class SharedLimits:
    """What keys may still use; for one event loop. One transaction decides about each request.

    Mostly it is one statement, which replaces the row that this server has left by the next one. If
    another server has changed it meanwhile, the row is locked and read again.

    Held tokens count for all servers until they are settled, or until their server is silent for
    too long. While the database can't be used, this server decides by what it knows of the key, and
    writes later what was used; a key of which it knows nothing is refused. SQLite allows only one
    of the `threads`. Without a `clock` times are those of PostgreSQL, the same for all servers.
    """

    def __init__(
        self,
        database: Database,
        store: UsageStore | None = None,
        clock: Callable[[], float] | None = time.time,
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
        self._is_down = False
        """Whether the last transaction has failed; the thread that confirms tries again."""
        self._is_confirming = False
        """Whether the thread that confirms held tokens was started."""
        closing = weakref.finalize(self, close_garbage, self._threads, self._database)
        closing.atexit = False  # at the exit the threads may still write

    async def count_request(self, key: ApiKey, *, reserves: bool = False) -> bool:
        """Count a request for all servers; raises ApiError if a limit is reached, or not known.

        False if the request `reserves` tokens, and is to be counted with them: one decision costs
        half of two. Where this server knows that a limit is reached, the body is not read for it.
        """
        if self._store is not None:
            self._store.note_use(key.name, int(time.time()))
        if key.limits == KeyLimits():  # without limits, no transaction is needed
            return True
        known = self._last_limiters.get(key.name)
        if reserves and key.limits.counts_tokens and known and known.allows_request(key):
            return False
        await self.reserve_tokens(key, 0, 0, requests=1)
        return True

    async def reserve_tokens(
        self, key: ApiKey, needed: int, wished: int, *, requests: int = 0
    ) -> int:
        """Hold `wished` tokens, or as many as are left, but at least `needed`; count a request.

        Raises ApiError if they are not left, or if that can't be checked.
        """

        def work(limiter: limits.Limiter) -> int:
            amount = limiter.grant_tokens(key, needed, wished)
            if requests:  # last, because what is refused is not counted
                limiter.count_request(key)
            return amount

        return await self._decide(key, work, requests)

    def settle_tokens(self, key: ApiKey, reserved: int, used: int, *, requests: int = 0) -> None:
        """Replace held tokens by those that were used: here at once, in the database soon.

        `requests` have reserved nothing, and are counted now.
        """
        if not key.limits.counts_tokens:
            return
        if known := self._last_limiters.get(key.name):  # for the headers of the next answers
            known.settle(limits.Resource.TOKENS, reserved, used)
            known.settle(limits.Resource.REQUESTS, 0, requests)
        self._settle(key.name, _Change(reserved, used, requests))

    def headers(self, key: ApiKey) -> dict[str, str]:
        """The state of the limits, without what other servers counted since the last request."""
        limiter = self._last_limiters.get(key.name)
        return {} if limiter is None else limiter.headers(key)

    def write_waiting(self) -> None:
        """Begin to write what is settled, and to confirm what is held."""
        for name, state in list(self._states.items()):
            if state.is_due or self._is_down:
                with suppress(RuntimeError):  # the process ends
                    self._threads.submit(self._write, name)

    def flush(self) -> None:
        """Wait until all that is settled is written, or has failed."""
        for work in [self._threads.submit(self._write, name) for name in list(self._states)]:
            work.result()

    async def _decide(
        self, key: ApiKey, work: Callable[[limits.Limiter], int], requests: int
    ) -> int:
        """Do `work`, which returns the tokens to hold and counts `requests`.

        Raises ApiError if a limit is reached, or not known.
        """
        if not self._is_confirming:  # a server whose keys have no limits needs no thread
            self._is_confirming = True
            repeat(self, SharedLimits.write_waiting, FLUSH_SECONDS)
        known = self._last_limiters.get(key.name)
        if known is None or not self._is_down:
            running = self._threads.submit(self._transact, key.name, work)
            try:
                amount, self._last_limiters[key.name] = await asyncio.wrap_future(running)
            except asyncio.CancelledError:
                # the thread goes on, and nobody would give back what it reserves
                running.add_done_callback(partial(self._release, key))
                raise
            except LimitsError as error:
                if known is None:
                    raise ApiError(
                        503, _UNAVAILABLE, "limits_unavailable", headers=dict(_RETRY_LATER)
                    ) from error
            else:
                return amount
        amount = work(known)
        known.reserve(amount)
        self._states[key.name].settled.append(_Change(-amount, requests=requests))
        return amount

    def _transact(
        self, name: str, work: Callable[[limits.Limiter], int]
    ) -> tuple[int, limits.Limiter]:
        """Write what is settled, and do `work`, in one transaction; runs in a thread.

        `work` returns the tokens that it reserves, which are held until they are settled.
        """
        state = self._states[name]
        with state.lock:
            settled = tuple(state.settled)
            held = state.held - sum(change.released for change in settled)

            # it may run again after a failure, so the state of this server changes after it
            def change(row: str, moment: float) -> tuple[int, KeyWindows]:
                windows, now = KeyWindows(row, moment), time.monotonic()
                for past in settled:
                    age = now - past.moment
                    windows.limiter.settle(limits.Resource.TOKENS, 0, past.tokens, age)
                    windows.limiter.settle(limits.Resource.REQUESTS, 0, past.requests, age)
                windows.hold(self.id, held)  # before the work, which may use what was given back
                amount = work(windows.limiter)
                windows.hold(self.id, held + amount)
                return amount, windows

            try:
                amount, limiter = self._change_row(name, state, change)
            except LimitsError as error:
                if not self._is_down:  # once, until a transaction works again
                    logger.error("Limits are kept by what this server knows of a key: %s", error)
                self._is_down = True
                raise
            self._is_down = False
            state.held = held + amount
            del state.settled[: len(settled)]  # what was added meanwhile stays
            state.renewed = time.monotonic()
            return amount, limiter

    def _change_row(
        self, name: str, state: _KeyState, change: Callable[[str, float], tuple[int, KeyWindows]]
    ) -> tuple[int, limits.Limiter]:
        """Replace the row of a key by the changed one; runs in a thread that has the state's lock.

        The row is read if others write it, if it says no, and after a while for the time.
        """
        known, now, clock = state.row, time.monotonic(), self._clock or time.time
        if known and state.is_alone and now - state.row_read < RENEW_SECONDS:
            with suppress(ApiError):
                amount, windows = change(known, clock() if self._clock else now + state.ahead)
                row = windows.row()
                exchange = row, name, known
                exchanged = self._database.run(
                    lambda rows: rows.execute(_EXCHANGE, exchange), write=False
                )
                if exchanged.rowcount:
                    state.row = row
                    return amount, windows.limiter

        def change_locked(rows: Rows) -> tuple[str, str, float, int, limits.Limiter]:
            rows.execute(_LOCK, (name,))
            read = rows.execute(_READ, (name,))
            # before the row is fetched: both are asked in one go
            read_time = None if self._clock else rows.execute(_DATABASE_TIME)
            (before,) = read.fetchone()
            moment: float = read_time.fetchone()[0] if read_time else clock()
            amount, windows = change(before, moment)
            row = windows.row()
            rows.execute(_WRITE, (row, name))
            return before, row, moment - time.monotonic(), amount, windows.limiter

        before, state.row, state.ahead, amount, limiter = self._database.run(change_locked)
        state.is_alone, state.row_read = known in ("", before), now
        return amount, limiter

    def _settle(self, name: str, change: _Change) -> None:
        """Note what a request has changed, and begin to write that."""
        self._states[name].settled.append(change)
        self._threads.submit(self._write, name)

    def _release(self, key: ApiKey, work: "Future[tuple[int, limits.Limiter]]") -> None:
        """Settle a reservation whose request has ended before it was made."""
        if not work.cancelled() and work.exception() is None:
            self._settle(key.name, _Change(work.result()[0]))

    def _write(self, name: str) -> None:
        """Runs in a thread; what fails stays for the next attempt."""
        # another transaction of the key may have written it
        if self._states[name].is_due or self._is_down:
            with suppress(LimitsError):
                self._transact(name, lambda _limiter: 0)  # only what each transaction does first


def keys_in(server: PostgresServer, grace: float = KEYS_GRACE) -> DatabaseKeys:
    """The keys in a database; see `DatabaseKeys`."""
    return DatabaseKeys(key_database_in(server), grace=grace)


def key_database_in(server: PostgresServer) -> PostgresDatabase:
    """The tables of the keys in a database."""
    return PostgresDatabase(server, "keys", shared_keys.MIGRATIONS, keys.KeyStoreError)


def usage_in(server: PostgresServer) -> PostgresDatabase:
    """The usage in a database."""
    return PostgresDatabase(server, "usage", usage.MIGRATIONS, UsageError)


def limits_in(server: PostgresServer) -> PostgresDatabase:
    """What counts against the limits of keys in a database; requests don't wait for its disk."""
    return PostgresDatabase(server, "limits", MIGRATIONS, LimitsError, durable=False)


def limits_in_memory() -> SharedLimits:
    """Limits that are forgotten at the end of the process."""
    return SharedLimits(MemoryDatabase(MIGRATIONS), threads=1)


def open_limits(usage_file: Path) -> DatabaseFile:
    """What counts against the limits of keys, in a file beside that of their usage."""
    on_damage = partial(logger.error, "The file of limits was damaged (%s). The old file is %s")
    return DatabaseFile(usage_file.with_name(LIMITS_NAME), MIGRATIONS, on_damage, LimitsError)
