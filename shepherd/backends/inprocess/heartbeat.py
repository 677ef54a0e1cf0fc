"""Whether a thread that should be working gets anywhere."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

STALLED_AFTER = 30.0
"""Seconds without progress after which a server says that it can't answer.

A step takes half a second; the first chunk of a prompt on a very slow machine takes longest.
"""


class Heartbeat:
    """One thread beats, any thread asks. Time in which the thread has no work does not count."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._works = False
        self._last = clock()

    def beat(self) -> None:
        """The thread has work and has got somewhere with it."""
        with self._lock:
            self._works, self._last = True, self._clock()

    def rest(self) -> None:
        """The thread has no work."""
        with self._lock:
            self._works = False

    @contextmanager
    def working(self) -> Generator[None]:
        """Work as long as the block runs."""
        self.beat()
        try:
            yield
        finally:
            self.rest()

    @property
    def silent(self) -> float:
        """Seconds since the last beat of a thread that has work, 0.0 if it has none."""
        with self._lock:
            return self._clock() - self._last if self._works else 0.0

    @property
    def stalled(self) -> bool:
        """Whether there was no progress for longer than work takes."""
        return self.silent > STALLED_AFTER
