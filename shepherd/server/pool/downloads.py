"""Models that a server downloads from the hub because a client asks for them."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

from shepherd.catalog.hub import PullProgress, pull
from shepherd.server.errors import ApiError

MAX_DOWNLOADS = 2
"""More at a time would only share the connection."""

TICK_SECONDS = 0.2
"""Steps of one file come together in this time: its pieces are small."""


class _StoppedError(Exception):
    """Nobody waits for the download any more."""


class Downloads:
    """The downloads of a server."""

    def __init__(self) -> None:
        self.running: dict[str, PullProgress] = {}
        """The last step of each download, by the name that the client gave."""

    async def steps(self, name: str, directory: Path) -> AsyncGenerator[PullProgress]:
        """Download a model into a directory, step by step; leaving ends it, and its part stays.

        Of the pieces of one file only the newest is told. Raises ApiError while there are too many
        downloads, and ModelLoadError.
        """
        if name in self.running or len(self.running) >= MAX_DOWNLOADS:
            message = f"{', '.join(self.running)} is being downloaded; try again later."
            raise ApiError(409, message, "download_running", "model")
        loop, stopped = asyncio.get_running_loop(), threading.Event()
        steps: dict[tuple[str, str], PullProgress] = {}

        def report(step: PullProgress) -> None:
            """Called by the thread that downloads."""
            if stopped.is_set():
                raise _StoppedError
            loop.call_soon_threadsafe(take, step)

        def take(step: PullProgress) -> None:
            steps[step.status, step.digest] = self.running[name] = step

        def ended(task: asyncio.Task[Path]) -> None:
            del self.running[name]
            if not task.cancelled():
                task.exception()  # else asyncio logs that of a download that nobody waits for

        take(PullProgress("pulling manifest"))
        task = asyncio.create_task(asyncio.to_thread(pull, name, directory, report))
        task.add_done_callback(ended)
        try:
            while steps or not task.done():
                if not task.done():
                    await asyncio.wait([task], timeout=TICK_SECONDS)
                new = [*steps.values()]
                steps.clear()
                for step in new:
                    yield step
            task.result()
        finally:
            stopped.set()
