"""Which clients are connected, and for how long the others have been away."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

MAX_REMEMBERED = 1000


class Clock(Protocol):
    """Tells the time in seconds from an arbitrary moment, and waits."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The time that goes by."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Presence:
    """Knows of each client whether one of its streams is open, or else when it was last there."""

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
        """The client was there just now."""
        self._last_seen.pop(client, None)
        self._last_seen[client] = self._clock.now()
        if len(self._last_seen) > MAX_REMEMBERED:
            del self._last_seen[next(iter(self._last_seen))]

    def is_listening(self, client: str) -> bool:
        """Whether a stream of the client is open."""
        return client in self._streams

    def away(self, client: str) -> float:
        """For how many seconds the client has not been there; infinite if it never was."""
        if self.is_listening(client):
            return 0.0
        return self._clock.now() - self._last_seen.get(client, -math.inf)

    async def until_away(self, client: str, seconds: float) -> None:
        """Wait until the client has been away for so long without a break."""
        while (left := seconds - self.away(client)) > 0:
            if self.is_listening(client):
                await self._left.wait()
            else:
                await self._clock.sleep(left)
