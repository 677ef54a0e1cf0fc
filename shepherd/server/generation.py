"""A generation as a stream of text that a route can translate while it grows."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

from shepherd.backends.base import Backend, Generation, Prefilled
from shepherd.events import TEXT_EVENTS, CallbackEvent, Topic
from shepherd.server.connection import end_tasks
from shepherd.session import Session

logger = logging.getLogger(__name__)

TextPiece: TypeAlias = tuple[CallbackEvent, str]


def log_warnings(event: CallbackEvent, content: str, name: str = "", _id: str = "") -> bool:
    """An event callback that only passes a backend's warnings to the log."""
    if event is CallbackEvent.SYSTEM and name == Topic.WARNING:
        logger.warning("%s", content)
    return True


class GenerationStream:
    """The text events of a running generation, then what it gave; iterate it once."""

    def __init__(self, backend: Backend, prefilled: Prefilled, max_tokens: int) -> None:
        self._queue: asyncio.Queue[TextPiece | None] = asyncio.Queue()
        work = backend.generate_from_prefilled(prefilled, self._listen, max_tokens)
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(self._ended)

    async def __aiter__(self) -> AsyncIterator[TextPiece]:
        ended = False
        while not ended:
            pieces = [await self._queue.get()]
            while not self._queue.empty():  # the reader is slower than the model: give it more
                pieces.append(self._queue.get_nowait())
            ended = pieces[-1] is None
            for event, run in groupby(filter(None, pieces), key=itemgetter(0)):
                yield event, "".join(text for _, text in run)

    async def result(self) -> Generation:
        """What was generated; raises what the backend raised."""
        return await self._task

    async def aclose(self) -> None:
        """Stop generating if it still goes on."""
        await end_tasks(self._task)

    def _listen(self, event: CallbackEvent, content: str, name: str, id: str) -> bool:
        if event in TEXT_EVENTS and content:
            self._queue.put_nowait((event, content))
        return log_warnings(event, content, name)

    def _ended(self, _task: asyncio.Task[Any]) -> None:
        self._queue.put_nowait(None)


@asynccontextmanager
async def open_generation(
    backend: Backend, session: Session, max_tokens: int
) -> AsyncGenerator[GenerationStream]:
    """Prefill, then generate in the background until the context is left.

    What `Backend.prefill_session` raises is raised on entering.
    """
    async with await backend.prefill_session(session, log_warnings) as prefilled:
        stream = GenerationStream(backend, prefilled, max_tokens)
        try:
            yield stream
        finally:
            await stream.aclose()
