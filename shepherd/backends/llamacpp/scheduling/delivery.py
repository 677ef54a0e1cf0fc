"""Delivery of updates from the owner thread to the coroutines that wait for them."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from shepherd.backends.inprocess.updates import Text, Update
from shepherd.backends.llamacpp.scheduling.job import Job

HOLD_SECONDS = 0.004
"""Seconds that text may wait for more text: waking the event loop costs as much as a token of a
small model, and this delay is not visible."""

Deliver = Callable[[list[tuple[Job, Update]]], None]


class Outbox:
    """Collects updates and delivers them in one call. Owner thread only."""

    def __init__(self, deliver: Deliver, clock: Callable[[], float] = monotonic) -> None:
        self._deliver = deliver
        self._clock = clock
        self._updates: list[tuple[Job, Update]] = []
        self._urgent = False
        self._sent = 0.0

    def post(self, job: Job, update: Update) -> None:
        """Take an update; all are urgent but text after an answer's first."""
        self._updates.append((job, update))
        if not isinstance(update, Text) or not job.has_text:
            self._urgent = True
        job.has_text = job.has_text or isinstance(update, Text)

    def flush(self, *, hold: bool = False) -> None:
        """Deliver everything; with `hold`, recent text may wait for the next flush."""
        if not self._updates:
            return
        now = self._clock()
        if hold and not self._urgent and now - self._sent < HOLD_SECONDS:
            return
        updates, self._updates = self._updates, []
        self._urgent, self._sent = False, now
        self._deliver(updates)


class Mailbox:
    """The updates of one job, for one reader. Event loop's thread only."""

    def __init__(self) -> None:
        self._updates: deque[Update] = deque()
        self._arrived = asyncio.Event()

    def put(self, update: Update) -> None:
        """Add an update."""
        self._updates.append(update)
        self._arrived.set()

    async def take(self) -> list[Update]:
        """All updates so far, in order; waits for the first."""
        await self._arrived.wait()
        self._arrived.clear()
        updates = list(self._updates)
        self._updates.clear()
        return updates
