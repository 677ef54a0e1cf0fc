"""Answers that run alone: batch after batch, with little work in between."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import DECODED, NativeContext, Span
from shepherd.backends.llamacpp.scheduling.answers import Answers
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.planner import BatchTimer, Part, Planner
from shepherd.errors import BackendError
from shepherd.events import FinishReason

MAX_SECONDS = 0.004
"""Seconds after which the text of a run is delivered: waking the event loop costs as much as a
token of a small model, and this delay is not visible."""

MAX_HELD_SECONDS = 0.05
"""The same for answers whose text is sent as a whole: nobody reads the text of a run."""


class Ending(NamedTuple):
    """A job that ends, with the reason or with an error."""

    job: Job
    reason: FinishReason | BackendError


class DecodeLoop:
    """Decodes one token of each answer again and again, until something else is to do.

    The mirrors of the sequences and the text of the answers follow after the last batch.
    """

    def __init__(
        self,
        context: NativeContext,
        pool: SequencePool,
        planner: Planner,
        timer: BatchTimer,
        answers: Answers,
    ) -> None:
        self._context = context
        self._pool = pool
        self._planner = planner
        self._timer = timer
        self._answers = answers
        self.endings: list[Ending] = []
        """The jobs that end after the last run."""

    def run(self, parts: Sequence[Part], quiet: Callable[[], bool]) -> list[Part]:
        """Decode batches of `parts`, which have one token each, as long as `quiet` returns true.

        Returns the parts of a batch that was not decoded, because it has drafts or there was no
        room for it; else []. Raises BackendError, after which the mirrors must be checked.
        """
        self.endings = []
        jobs = [part.job for part in parts]
        starts = [len(part.sequence.tokens) for part in parts]
        positions = [part.sequence.position for part in parts]
        deadline = perf_counter() + _max_seconds(jobs)
        decoded = 0
        try:
            while True:
                drafted = self._planner.with_drafts(jobs)
                if drafted:
                    return drafted
                places = (position + decoded for position in positions)
                spans = [
                    Span(part.sequence.id, place, (part.job.tokens[-1],), True)
                    for part, place in zip(parts, places, strict=True)
                ]
                self._timer.begin()
                if self._context.decode(spans) != DECODED:
                    return self._planner.next_parts(jobs)
                self._timer.returned()
                decoded += 1
                self._timer.add(parts, self._planner.prompt_speed)
                self._sample(jobs)
                length = 1 + decoded
                ahead = any(
                    len(job.tokens) > start + length
                    for job, start in zip(jobs, starts, strict=True)
                )
                if self.endings or ahead or not quiet() or perf_counter() > deadline:
                    return []
        finally:
            self._settle(parts, starts, decoded)

    def _sample(self, jobs: Sequence[Job]) -> None:
        """Sample the next token of each job."""
        for index, job in enumerate(jobs):
            assert job.sampler is not None
            try:
                token = job.sampler.sample(self._context, index)
                job.decodes += 1
                reason = self._answers.accept(job, token) or self._answers.jump_ahead(job)
            except BackendError as error:
                reason = error
            if reason is not None:
                self.endings.append(Ending(job, reason))

    def _settle(self, parts: Sequence[Part], starts: Sequence[int], decoded: int) -> None:
        """Note the decoded tokens in the mirrors, and post the text of the answers."""
        for part, start in zip(parts, starts, strict=True):
            self._answers.post_text(part.job)
            try:
                self._pool.extend(part.sequence, part.job.tokens[start : start + decoded])
            except BackendError as error:
                self.endings.append(Ending(part.job, error))


def _max_seconds(jobs: Sequence[Job]) -> float:
    """The longest time of a run; a new request or a cancelled one ends it before."""
    is_held = all(job.holds_text and job.has_text for job in jobs)
    return MAX_HELD_SECONDS if is_held else MAX_SECONDS
