"""Generations as streams of text that a route can translate as they grow."""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from msgspec import Struct, field, structs

from shepherd import events
from shepherd.backends.base import Backend, Generation, Observer, Prefilled
from shepherd.messages import Message
from shepherd.sampling import TokenLogprob
from shepherd.server import errors, responses
from shepherd.session import Session
from shepherd.tasks import end_tasks

logger = logging.getLogger(__name__)

MAX_PROMPTS_AT_ONCE = 4
"""Prompts of one request that are worked on beside its first."""

CHARACTERS_PER_TOKEN = 4
"""An estimate for the tokens of an answer that was interrupted."""

NO_TOKENS = -1
"""The limit for a prompt that is only read."""


class Answering(Struct, frozen=True):
    """How answers are generated: by `backend`, through `observer`, each of at most `max_tokens`."""

    backend: Backend
    max_tokens: int = 0
    observer: Observer = field(default_factory=Observer)


class ChoicePiece(NamedTuple):
    """More text of a choice, with log probabilities if they were requested.

    It has no event if the choice has ended.
    """

    choice: int
    event: events.CallbackEvent | None
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def is_reasoning(self) -> bool:
        """Whether the text is part of the reasoning, and not of the content."""
        return self.event is events.CallbackEvent.THINKING


def log_warnings(event: events.Event) -> bool:
    """An event callback that only passes a backend's warnings to the log."""
    if isinstance(event, events.Notice) and event.topic == events.Topic.WARNING:
        logger.warning("%s", event.text)
    return True


class Choices:
    """Several parallel generations: their text as it arrives, then their results.

    Iterate it once. A failed choice ends too; `result` raises its error. A choice that is alone
    waits for `start`, or for the first reader: `results` does not want its text in pieces.
    """

    def __init__(
        self,
        answering: Answering,
        handles: Sequence[Prefilled],
        later: Sequence[Session] = (),
        callback: events.EventCallback = log_warnings,
    ) -> None:
        """`later` are further prompts, each with one choice; a few of them run at once."""
        self._callback = callback
        self._pieces: asyncio.Queue[ChoicePiece] = asyncio.Queue()
        self._running: set[int] = set()  # the choices whose end is not among the pieces yet
        self._tasks: list[asyncio.Task[Generation]] = []
        self._answering = answering
        self._later_slots = asyncio.Semaphore(MAX_PROMPTS_AT_ONCE)
        self._prompts = dict(enumerate(handles))
        # of each choice: how many log probabilities were sent, and the characters of its text
        self._sent_logprobs: defaultdict[int, int] = defaultdict(int)
        self._text_lengths: defaultdict[int, int] = defaultdict(int)
        self._has_begun = asyncio.Event()  # text or a call has come, or a choice has ended
        self._wants_pieces = True  # whether the text is read as it grows
        self.count = len(handles) + len(later)
        """How many choices there are."""
        if self.count > 1:  # one alone may be wanted whole, which the reader then says
            self.start()
        for index, session in enumerate(later, len(handles)):
            self._start_task(index, self._answer_later(index, session))

    def start(self) -> None:
        """Generate in the background from now on."""
        if not self._tasks:
            for index, handle in self._prompts.items():
                self._start_task(index, self._generate(index, handle))

    @property
    def prompt(self) -> events.Stats:
        """The measures of the prompt, before anything was generated."""
        first = self._prompts[0]
        return events.Stats(first.prompt_tokens, first.cached_tokens)

    def handle(self, index: int) -> Prefilled:
        """The prompt of a choice that has begun."""
        return self._prompts[index]

    async def __aiter__(self) -> AsyncIterator[ChoicePiece]:
        """Yields text as it arrives, until all choices have ended; joins what has piled up."""
        self.start()
        running = self.count
        while running:
            pieces = [await self._pieces.get()]
            # if the reader is slower than the model, more text is joined
            while not self._pieces.empty():
                pieces.append(self._pieces.get_nowait())
            pieces.sort(key=lambda piece: piece.choice)  # within a choice the order stays
            for _, run in groupby(pieces, key=lambda piece: (piece.choice, piece.event)):
                piece = _joined(run)
                if piece.event is None:
                    running -= 1
                yield piece

    async def begun(self) -> None:
        """Wait for the first text or call; raises the error of a choice that failed before it.

        Until then nothing was sent, so the caller can shorten the prompt and begin again.
        """
        self.start()
        await self._has_begun.wait()
        for task in self._tasks:
            if task.done():
                await task  # raises the error

    async def result(self, index: int) -> Generation:
        """The generation; raises the error of the backend."""
        self.start()
        return await self._tasks[index]

    def stats(self) -> list[events.Stats]:
        """The measures of all choices so far; those of a running answer are an estimate."""
        return [self._stats(index) for index in range(self.count)]

    async def results(self) -> list[Generation]:
        """The results of all choices, whose text need not come before; re-raises a failure."""
        self._wants_pieces = False  # unless the generations have begun
        self.start()
        return await asyncio.gather(*self._tasks)

    async def aclose(self) -> None:
        """Stop generating, unless it has ended."""
        await end_tasks(*self._tasks)

    def _start_task(self, index: int, work: Coroutine[Any, Any, Generation]) -> None:
        """Do the work of a choice in a task."""
        self._running.add(index)
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._note_end(index))
        self._tasks.append(task)

    async def _generate(self, index: int, handle: Prefilled) -> Generation:
        """The answer to a prompt that was read; its text goes to the pieces."""
        answering = self._answering
        if answering.max_tokens == NO_TOKENS:  # only the reading was wanted
            return Generation(Message.assistant(""), events.FinishReason.LENGTH, handle.stats())
        handle.wants_pieces = self._wants_pieces
        listen = partial(self._listen, index)
        try:
            return await answering.observer.generate(
                answering.backend, handle, listen, answering.max_tokens
            )
        finally:  # before the task is done, to be read together with the last text
            self._note_end(index)

    async def _answer_later(self, index: int, session: Session) -> Generation:
        """The answer to a further prompt, once there is a slot for it."""
        backend, observer = self._answering.backend, self._answering.observer
        async with (
            self._later_slots,
            observer.prefilled(backend, session, log_warnings) as (handle,),
        ):
            self._prompts[index] = handle
            return await self._generate(index, handle)

    def _listen(self, index: int, event: events.Event) -> bool:
        """The callback of a choice; the calls in an answer come with its result."""
        kind = events.KINDS[type(event)]
        if isinstance(event, events.TextEvent) and event.text:
            self._text_lengths[index] += len(event.text)
            logprobs = () if isinstance(event, events.Thinking) else self._fresh_logprobs(index)
            self._pieces.put_nowait(ChoicePiece(index, kind, event.text, logprobs))
        # a notice or an error is not sent, so the prompt can still be shortened after it
        if kind not in (events.CallbackEvent.SYSTEM, events.CallbackEvent.ERROR):
            self._has_begun.set()
        return self._callback(event)

    def _stats(self, index: int) -> events.Stats:
        """The measures of a choice so far, none if its prompt is not read yet."""
        task = self._tasks[index] if self._tasks else None  # a choice alone may not run yet
        # a choice that failed or was stopped has no result, but tokens to pay for
        if task and task.done() and not task.cancelled() and task.exception() is None:
            return task.result().stats
        handle = self._prompts.get(index)
        if handle is None:
            return events.Stats()
        return stats_so_far(handle, self._text_lengths[index])

    def _fresh_logprobs(self, index: int) -> tuple[TokenLogprob, ...]:
        """The log probabilities of a choice that were not sent yet."""
        logprobs = self._prompts[index].logprobs or []
        fresh = logprobs[self._sent_logprobs[index] :]
        self._sent_logprobs[index] = len(logprobs)
        return tuple(fresh)

    def _note_end(self, index: int) -> None:
        """Tell the reader once that a choice has ended, as an answer or with an error.

        Its task tells it too, because that can end before it generates.
        """
        if index in self._running:
            self._running.remove(index)
            self._pieces.put_nowait(ChoicePiece(index, None))
            self._has_begun.set()


def stats_so_far(prompt: Prefilled, characters: int) -> events.Stats:
    """The measures of an answer that has not ended; `characters` is the length of its text.

    Of its tokens, what is known counts, or the estimate from its text if that is more.
    """
    stats, estimate = prompt.stats(), math.ceil(characters / CHARACTERS_PER_TOKEN)
    written = max(stats.completion_tokens, len(prompt.generated), estimate)
    return structs.replace(stats, completion_tokens=written)


def _joined(pieces: Iterable[ChoicePiece]) -> ChoicePiece:
    """Pieces of one kind as one."""
    parts = list(pieces)
    logprobs = tuple(token for part in parts for token in part.logprobs)
    return parts[0]._replace(text="".join(part.text for part in parts), logprobs=logprobs)


@asynccontextmanager
async def open_choices(
    answering: Answering,
    session: Session,
    count: int = 1,
    callback: events.EventCallback = log_warnings,
    later: Sequence[Session] = (),
) -> AsyncGenerator[Choices]:
    """Prefill, then generate `count` answers in the background until the context ends.

    Entering it raises the errors of `Backend.prefill_session`. `callback` gets the events of the
    prompt and of the answers. The choices of `later` follow, one for each.
    """
    prefilling = answering.observer.prefilled(answering.backend, session, callback, count)
    async with prefilling as handles:
        choices = Choices(answering, handles, later, callback)
        try:
            yield choices
        finally:
            await choices.aclose()


def check_whole(generation: Generation) -> None:
    """Raise ApiError for an answer that broke off, which must not look like a whole one."""
    if generation.finish_reason is events.FinishReason.ERROR:
        raise errors.answer_cut(generation.broken)


class PromptProgress(Struct, frozen=True):
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
        # reports that no frame has told yet; None after the last one
        self._reports: asyncio.Queue[PromptProgress | None] = asyncio.Queue()
        self._last_reported_tokens = -1  # tokens of the last frame, -1 before the first

    def listen(self, event: events.Event) -> bool:
        """The callback for the prompt."""
        if isinstance(event, events.PrefillProgress) and not event.place:
            self._reports.put_nowait(self._report(event.total, event.cached, event.done))
        return log_warnings(event)

    async def frames(
        self,
        opening: AbstractAsyncContextManager[Choices],
        answer: Callable[[Choices], responses.Frames],
    ) -> responses.Frames:
        """Yields a frame for each report while `opening` is entered, then those of `answer`."""
        async with AsyncExitStack() as held:
            entering = asyncio.create_task(held.enter_async_context(opening))
            # None ends the reports, also when the prompt can't be read
            entering.add_done_callback(lambda _: self._reports.put_nowait(None))
            try:
                while (report := await self._reports.get()) is not None:
                    for text in self._texts(report):
                        yield text
            finally:
                await end_tasks(entering)  # if the client has left; its error is raised below
            choices = await entering
            prompt = choices.prompt
            # a prompt that was in memory already has had no report
            last = self._report(prompt.prompt_tokens, prompt.cached_tokens, prompt.prompt_tokens)
            for text in self._texts(last):
                yield text
            async for text in answer(choices):
                yield text

    def _texts(self, report: PromptProgress) -> list[str]:
        """The frames of a report; before the first, one with what was in memory."""
        texts: list[str] = []
        if self._last_reported_tokens < 0:
            first = PromptProgress(report.total, report.cached, report.cached, report.seconds)
            texts.append(self._frame(first))
            self._last_reported_tokens = report.cached
        if report.done > self._last_reported_tokens:
            self._last_reported_tokens = report.done
            texts.append(self._frame(report))
        return texts

    def _report(self, total: int, cached: int, done: int) -> PromptProgress:
        """The progress at this moment, in tokens."""
        return PromptProgress(total, cached, done, time.perf_counter() - self._started)
