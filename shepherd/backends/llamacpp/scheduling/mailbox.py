"""Where a job's updates wait for the coroutine that reads them."""

import asyncio
from collections import deque

from shepherd.backends.inprocess.updates import Update


class Mailbox:
    """One reader; event loop's thread only."""

    def __init__(self) -> None:
        self._updates: deque[Update] = deque()
        self._arrived = asyncio.Event()

    def put(self, update: Update) -> None:
        """Add an update."""
        self._updates.append(update)
        self._arrived.set()

    async def take(self) -> list[Update]:
        """All updates that are there, at least one, in order."""
        await self._arrived.wait()
        self._arrived.clear()
        updates = list(self._updates)
        self._updates.clear()
        return updates
