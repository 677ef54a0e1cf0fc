"""What the user sent, done one after the other, and stopped on demand."""

import asyncio
from collections.abc import Awaitable, Callable


class WorkQueue:
    """Messages and commands in the order in which they were sent.

    `handle` does one; `interrupted` is told when that was stopped, `idle` when nothing waits.
    """

    def __init__(
        self,
        handle: Callable[[str], Awaitable[None]],
        interrupted: Callable[[], None],
        idle: Callable[[], None],
    ) -> None:
        self.waiting: list[str] = []
        self._handle = handle
        self._interrupted = interrupted
        self._idle = idle
        self._arrived = asyncio.Event()
        self._current: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is being done."""
        return self._current is not None

    def add(self, text: str) -> None:
        """Put `text` at the end."""
        self.waiting.append(text)
        self._arrived.set()

    def stop(self) -> list[str]:
        """Stop what is being done; returns what waited behind it, which is not done either."""
        if self._current is None or self._current.cancelling():
            return []
        waiting, self.waiting = self.waiting, []
        self._current.cancel()
        return waiting

    async def run(self) -> None:
        """Do what comes until cancelled; raises what `handle` raises."""
        while True:
            while self.waiting:
                await self._do(self.waiting.pop(0))
            self._arrived.clear()
            self._idle()
            await self._arrived.wait()

    async def _do(self, text: str) -> None:
        task = self._current = asyncio.ensure_future(self._run_one(text))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        finally:
            self._current = None
        if task.cancelled():
            self._interrupted()
        else:
            task.result()

    async def _run_one(self, text: str) -> None:
        await self._handle(text)
