"""Background responses: made while no client waits, and followed by any number of clients."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from shepherd.errors import BusyError
from shepherd.messages import JsonObject
from shepherd.server.exchanges import Exchanges
from shepherd.server.guard import CHECK_SECONDS
from shepherd.server.openai_responses.creation import Creation
from shepherd.server.openai_responses.history import History
from shepherd.server.openai_responses.record import Status
from shepherd.server.responses import Frames
from shepherd.tasks import end_tasks

MAX_RUNNING = 64
MAX_FINISHED = 32
"""Finished responses whose events can still be streamed."""


class Job:
    """A background response; `frames` are its events so far, each at the place of its number.

    `accepted` is the response as it was at the beginning.
    """

    def __init__(self, creation: Creation, exchanges: Exchanges) -> None:
        self.creation = creation
        self.frames: list[str] = []
        self.is_over = False
        self.accepted: JsonObject = {}
        self._exchanges = exchanges
        self._changed = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self, is_valid: Callable[[], bool]) -> None:
        """Begin once the request is accepted; raises the reason why it is not.

        The work ends when `is_valid` no longer holds.
        """
        creation, record = self.creation, self.creation.record
        record.status = Status.QUEUED
        creation.opening = ("response.in_progress",)
        self.accepted = record.body()
        self._add(creation.events.state("response.created"))
        self._add(creation.events.state("response.queued"))
        work = asyncio.create_task(self._generate())
        built = asyncio.wrap_future(creation.built)
        try:
            await asyncio.wait({work, built}, return_when=asyncio.FIRST_COMPLETED)
            if not built.done():
                await work
            await creation.keep()
            self.accepted["store"] = record.stored
        except BaseException:
            await end_tasks(work)
            raise
        self._work = work
        self._watch = asyncio.create_task(self._finish(work, is_valid))

    async def cancel(self) -> None:
        """Stop the work; a response that is complete stays as it is."""
        if self._work is not None and self._watch is not None:
            await end_tasks(self._work)
            await asyncio.wait({self._watch})

    @asynccontextmanager
    async def follow(self, first: int) -> AsyncGenerator[Frames]:
        """The events from the number `first` on, until the response is over."""
        yield self._frames(first)

    async def _frames(self, first: int) -> Frames:
        while True:
            changed, over = self._changed, self.is_over
            for frame in self.frames[first:]:
                first += 1
                yield frame
            if over:
                return
            await changed.wait()

    async def _generate(self) -> None:
        call = replace(self.creation.call(), stream=True)
        async with self._exchanges.open_frames(call) as frames:
            async for frame in frames:
                self._add(frame)

    async def _finish(self, work: asyncio.Task[None], is_valid: Callable[[], bool]) -> None:
        """Wait for the work, and store how it has ended."""
        while not (await asyncio.wait({work}, timeout=CHECK_SECONDS))[0]:
            if not is_valid():
                await end_tasks(work)
        if work.cancelled():
            self.creation.cancel()
        elif (error := work.exception()) is not None:
            self._add(self.creation.fail(error))
        if work.cancelled() or work.exception() is not None:
            await self.creation.keep()
        self.is_over = True
        self.creation.history = History((), ())  # which may be large
        self._notify()

    def _add(self, frame: str) -> None:
        self.frames.append(frame)
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Jobs:
    """The background responses of this process, by their ids."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._jobs: dict[str, Job] = {}

    async def start(self, creation: Creation, is_valid: Callable[[], bool]) -> Job:
        """Begin a response; raises the reason why it is not accepted, BusyError if many run."""
        if sum(not job.is_over for job in self._jobs.values()) >= MAX_RUNNING:
            raise BusyError(f"{MAX_RUNNING} background responses already run; try again later.")
        job = Job(creation, self._exchanges)
        self._jobs[creation.record.id] = job
        try:
            await job.start(is_valid)
        except BaseException:
            del self._jobs[creation.record.id]
            raise
        finished = [name for name, other in self._jobs.items() if other.is_over]
        for name in finished[:-MAX_FINISHED]:
            del self._jobs[name]
        return job

    def find(self, owner: str, id: str) -> Job | None:
        """The response; None if it is not here, or another key's."""
        job = self._jobs.get(id)
        return job if job is not None and job.creation.owner == owner else None

    async def remove(self, job: Job) -> None:
        """Cancel a response and forget it."""
        await job.cancel()
        self._jobs.pop(job.creation.record.id, None)
