"""The thread for text, and a heartbeat that shows whether a thread makes progress."""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import ParamSpec, TypeVar

from shepherd.errors import BackendError

STALLED_AFTER = 30.0
"""Seconds without progress after which a server reports that it can't answer.

A step takes half a second. The first chunk of a prompt on a very slow machine takes longest.
"""

P = ParamSpec("P")
T = TypeVar("T")


class Heartbeat:
    """Shows whether a thread makes progress. Time without work does not count."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._is_working = False
        self._last_beat = clock()

    def beat(self) -> None:
        """Note that the thread has work and made progress."""
        with self._lock:
            self._is_working, self._last_beat = True, self._clock()

    def rest(self) -> None:
        """Note that the thread has no work."""
        with self._lock:
            self._is_working = False

    @contextmanager
    def working(self) -> Generator[None]:
        """Mark the thread as working while the block runs."""
        self.beat()
        try:
            yield
        finally:
            self.rest()

    @property
    def silent(self) -> float:
        """Seconds since the last beat; 0.0 if the thread has no work."""
        with self._lock:
            return self._clock() - self._last_beat if self._is_working else 0.0

    @property
    def stalled(self) -> bool:
        """Whether the thread has work and made no progress for too long."""
        return self.silent > STALLED_AFTER


class TextThread:
    """Renders and tokenizes off the event loop. Calls run one at a time, in order."""

    def __init__(self, name: str = "llama.cpp text") -> None:
        self._thread_ids: set[int] = set()
        """The thread itself, once it runs."""
        self._executor = ThreadPoolExecutor(
            max_workers=1,
            thread_name_prefix=name,
            initializer=lambda: self._thread_ids.add(threading.get_ident()),
        )
        self._closing_lock = threading.Lock()
        """Held while a call is queued: none may come after the end of the executor."""
        self._heartbeat = Heartbeat()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the thread accepts no more calls."""
        return self._closed

    @property
    def stalled(self) -> bool:
        """Whether a call runs for too long."""
        return self._heartbeat.stalled

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` on the thread; raises BackendError once closed."""
        future = self.post(work, *args, **kwargs)
        if future is None:
            raise BackendError("The model was closed.")
        return await asyncio.wrap_future(future)

    def post(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T] | None:
        """Queue `work`; None once closed."""
        with self._closing_lock:
            if self._closed:
                return None
            return self._executor.submit(self._run_with_heartbeat, work, *args, **kwargs)

    def close(self) -> None:
        """Wait for all queued calls, unless this is the thread itself; safe to call twice."""
        with self._closing_lock:
            self._closed = True
        is_own_thread = threading.get_ident() in self._thread_ids
        self._executor.shutdown(wait=not is_own_thread)  # a thread that waits for itself hangs

    def _run_with_heartbeat(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._heartbeat.working():
            return work(*args, **kwargs)
