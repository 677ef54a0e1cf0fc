"""Tracks which clients are connected, and how long the others have been away."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

MAX_REMEMBERED = 1000


class Clock(Protocol):
    """Returns the time in seconds from an arbitrary moment, and waits."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The real time."""

    def now(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Presence:
    """Tracks for each client whether a stream is open, or when the client was last present."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._streams: Counter[str] = Counter()
        self._last_seen: dict[str, float] = {}
        self._left = asyncio.Event()

    @contextmanager
    def listening(self, client: str) -> Generator[None]:
        """Count a stream of the client as open for the duration of the context."""
        self._streams[client] += 1
        try:
            yield
        finally:
            self._streams[client] -= 1
            if not self._streams[client]:
                del self._streams[client]
            self.seen(client)
            self._left.set()
            self._left.clear()

    def seen(self, client: str) -> None:
        """Note that the client is present."""
        self._last_seen.pop(client, None)
        self._last_seen[client] = self._clock.now()
        if len(self._last_seen) > MAX_REMEMBERED:
            del self._last_seen[next(iter(self._last_seen))]

    def is_listening(self, client: str) -> bool:
        """Whether a stream of the client is open."""
        return client in self._streams

    def away(self, client: str) -> float:
        """The seconds since the client was present; infinite if it never was."""
        if self.is_listening(client):
            return 0.0
        return self._clock.now() - self._last_seen.get(client, -math.inf)

    async def until_away(self, client: str, seconds: float) -> None:
        """Wait until the client has been away for this long without a break."""
        while (left := seconds - self.away(client)) > 0:
            if self.is_listening(client):
                await self._left.wait()
            else:
                await self._clock.sleep(left)
