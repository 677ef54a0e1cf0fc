"""A stream that tells how far its prompt is read, before its answer."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass

from shepherd.events import CallbackEvent, Topic
from shepherd.server.generation import Choices, log_warnings
from shepherd.server.responses import Frames
from shepherd.tasks import end_tasks


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Of `total` tokens, `done` are in memory; `cached` were there before. Times in seconds."""

    total: int
    cached: int
    done: int
    seconds: float


class ProgressStream:
    """The frames of the progress, then those of the answer."""

    def __init__(self, frame: Callable[[PromptProgress], str]) -> None:
        self._frame = frame
        self._started = time.perf_counter()
        self._reports: asyncio.Queue[PromptProgress | None] = asyncio.Queue()
        self._done = -1

    def listen(self, event: CallbackEvent, content: str, name: str = "", id: str = "") -> bool:
        """The callback for the prompt."""
        if event is CallbackEvent.SYSTEM and name == Topic.PREFILL:
            done, _, total = content.partition("/")
            self._reports.put_nowait(self._report(int(total), int(id or 0), int(done)))
        return log_warnings(event, content, name, id)

    async def frames(
        self,
        opening: AbstractAsyncContextManager[Choices],
        answer: Callable[[Choices], Frames],
    ) -> Frames:
        """Yields a frame for each report while `opening` is entered, then those of `answer`."""
        async with AsyncExitStack() as held:
            entering = asyncio.create_task(held.enter_async_context(opening))
            entering.add_done_callback(lambda _: self._reports.put_nowait(None))
            try:
                while (report := await self._reports.get()) is not None:
                    for text in self._texts(report):
                        yield text
            finally:
                if not entering.done():
                    await end_tasks(entering)
            choices = await entering
            prompt = choices.prompt
            last = self._report(prompt.prompt_tokens, prompt.cached_tokens, prompt.prompt_tokens)
            for text in self._texts(last):
                yield text
            async for text in answer(choices):
                yield text

    def _texts(self, report: PromptProgress) -> list[str]:
        """The frames of a report; before the first, one with what was in memory."""
        texts: list[str] = []
        if self._done < 0:
            first = PromptProgress(report.total, report.cached, report.cached, report.seconds)
            texts.append(self._frame(first))
            self._done = report.cached
        if report.done > self._done:
            self._done = report.done
            texts.append(self._frame(report))
        return texts

    def _report(self, total: int, cached: int, done: int) -> PromptProgress:
        return PromptProgress(total, cached, done, time.perf_counter() - self._started)
