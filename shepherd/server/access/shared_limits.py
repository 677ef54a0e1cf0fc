"""Keeps keys to limits that hold across all servers of one database."""

import asyncio
import logging
import secrets
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from shepherd.errors import ShepherdError
from shepherd.server.access.key import ApiKey, KeyLimits
from shepherd.server.access.limits import Limiter, Resource
from shepherd.server.access.shared_windows import KeyWindows, local_clock
from shepherd.server.access.usage import UsageStore
from shepherd.server.errors import ApiError
from shepherd.storage.rows import Database, Rows

T = TypeVar("T")
logger = logging.getLogger(__name__)

THREADS = 8
RENEW_SECONDS = 15.0
"""The interval in which a server confirms the tokens that it holds; see `LEASE_SECONDS`."""

FLUSH_SECONDS = 1.0
"""The interval of attempts to write what could not be written."""

RETRY_AFTER = "2"


class LimitsError(ShepherdError):
    """The limits can't be read or written; the message names the database."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is settled in one transaction."""

    reserved: int
    used: int


@dataclass(slots=True)
class _KeyState:
    """What this server holds of one key, and what is not written yet."""

    held: int = 0
    batches: list[_Batch] = field(default_factory=list[_Batch])
    renewed: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class SharedLimits:
    """`Limits` in a database; one transaction decides about each request.

    Held tokens count for all servers until they are settled, or until their server is silent for
    too long. What is settled while the database can't be used is written later. An SQLite
    file allows only one of the `threads`.
    """

    def __init__(
        self,
        database: Database,
        store: UsageStore | None = None,
        clock: Callable[[Rows], float] = local_clock,
        threads: int = THREADS,
    ) -> None:
        self.id = secrets.token_hex(8)
        self._database = database
        self._store = store
        self._clock = clock
        self._threads = ThreadPoolExecutor(threads, "limits")
        self._states: defaultdict[str, _KeyState] = defaultdict(_KeyState)
        self._seen: dict[str, Limiter] = {}
        self._failed = False
        stop = threading.Event()
        arguments = weakref.ref(self), stop
        threading.Thread(target=_keep_written, args=arguments, daemon=True).start()
        closing = weakref.finalize(self, _close, self._threads, stop)
        closing.atexit = False

    async def count_request(self, key: ApiKey) -> None:
        """See `Limits`."""
        if self._store is not None:
            self._store.note_use(key.name, int(time.time()))
        if key.limits != KeyLimits():
            await self._do(key, lambda windows: windows.limiter.count_request(key))

    async def reserve_tokens(self, key: ApiKey, needed: int, wished: int) -> int:
        """See `Limits`."""
        if not key.limits.counts_tokens:
            return wished

        state = self._states[key.name]

        def reserve(windows: KeyWindows) -> int:
            amount = windows.limiter.reserve_tokens(key, needed, wished)
            windows.limiter.settle(key.name, Resource.TOKENS, amount, 0)  # `hold` counts them
            windows.hold(self.id, state.held + amount)
            return amount

        def note(amount: int) -> None:
            state.held += amount

        work = self._submit(key.name, reserve, note)
        try:
            amount, limiter = await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            work.add_done_callback(partial(self._release, key))
            raise
        except LimitsError as error:
            raise _unavailable(error) from error
        self._seen[key.name] = limiter
        return amount

    def settle_tokens(self, key: ApiKey, reserved: int, used: int) -> None:
        """See `Limits`."""
        if not key.limits.counts_tokens and not reserved:
            return
        if key.name in self._seen:
            self._seen[key.name].settle_tokens(key, reserved, used)
        self._settle(key.name, reserved, used)

    def headers(self, key: ApiKey) -> dict[str, str]:
        """See `Limits`; what other servers counted since the last request is not in them."""
        limiter = self._seen.get(key.name)
        return {} if limiter is None else limiter.headers(key)

    def write_waiting(self) -> None:
        """Begin to write what is settled, and to confirm what is held."""
        for name, state in list(self._states.items()):
            is_due = state.held and time.monotonic() - state.renewed > RENEW_SECONDS
            if state.batches or is_due:
                with suppress(RuntimeError):  # the process ends
                    self._threads.submit(self._write, name)

    def flush(self) -> None:
        """Wait until all that is settled is written, or has failed."""
        for work in [self._threads.submit(self._write, name) for name in list(self._states)]:
            work.result()

    async def _do(self, key: ApiKey, work: Callable[[KeyWindows], T]) -> None:
        try:
            _, limiter = await asyncio.wrap_future(self._submit(key.name, work))
        except LimitsError as error:
            raise _unavailable(error) from error
        self._seen[key.name] = limiter

    def _submit(
        self,
        name: str,
        work: Callable[[KeyWindows], T],
        note: Callable[[T], None] = lambda _result: None,
    ) -> "Future[tuple[T, Limiter]]":
        return self._threads.submit(self._run, name, work, note)

    def _run(
        self, name: str, work: Callable[[KeyWindows], T], note: Callable[[T], None]
    ) -> tuple[T, Limiter]:
        """Runs in a thread; what is settled is written first."""
        state = self._states[name]
        with state.lock:
            self._write_batches(name, state)
            result = self._transact(name, state, work)
            note(result[0])
            return result

    def _transact(
        self, name: str, state: _KeyState, work: Callable[[KeyWindows], T]
    ) -> tuple[T, Limiter]:
        def change(rows: Rows) -> tuple[T, Limiter]:
            windows = KeyWindows.load(rows, name, self._clock)
            windows.hold(self.id, state.held)
            result = work(windows)
            windows.save(rows)
            started = time.monotonic()
            windows.limiter.clock = lambda: windows.now + time.monotonic() - started
            return result, windows.limiter

        result = self._database.run(change, lock=name)
        state.renewed = time.monotonic()
        return result

    def _write_batches(self, name: str, state: _KeyState) -> None:
        """Write what is settled, in the order of the requests."""
        while state.batches:
            batch = state.batches[0]

            def settle(windows: KeyWindows, batch: _Batch = batch) -> None:
                windows.limiter.settle(name, Resource.TOKENS, 0, batch.used)
                windows.hold(self.id, state.held - batch.reserved)

            self._transact(name, state, settle)
            state.held -= batch.reserved
            state.batches.pop(0)

    def _settle(self, name: str, reserved: int, used: int) -> None:
        self._states[name].batches.append(_Batch(reserved, used))
        self._threads.submit(self._write, name)

    def _release(self, key: ApiKey, work: "Future[tuple[int, Limiter]]") -> None:
        """Settle a reservation whose request has ended before it was made."""
        if not work.cancelled() and work.exception() is None:
            self._settle(key.name, work.result()[0], 0)

    def _write(self, name: str) -> None:
        """Runs in a thread; what fails stays for the next attempt."""
        state = self._states[name]
        try:
            with state.lock:
                self._write_batches(name, state)
                if state.held and time.monotonic() - state.renewed > RENEW_SECONDS:
                    self._transact(name, state, lambda _windows: None)
        except LimitsError as error:
            if not self._failed:
                logger.error("What keys use is not written: %s", error)
            self._failed = True
        else:
            self._failed = False


def _unavailable(error: LimitsError) -> ApiError:
    logger.error("Requests of keys with limits are refused: %s", error)
    message = "The limits of this key can't be checked at the moment; the server's log says why."
    return ApiError(503, message, "limits_unavailable", headers={"Retry-After": RETRY_AFTER})


def _keep_written(reference: "weakref.ref[SharedLimits]", stop: threading.Event) -> None:
    """Write what waits, until the limits are not used any more."""
    while not stop.wait(FLUSH_SECONDS):
        limits = reference()
        if limits is not None:
            limits.write_waiting()
        del limits


def _close(threads: ThreadPoolExecutor, stop: threading.Event) -> None:
    stop.set()
    threads.shutdown(wait=False)
