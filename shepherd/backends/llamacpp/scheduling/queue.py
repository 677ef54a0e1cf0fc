"""The jobs that wait and those that have a sequence, from their admission to their end."""

from collections import deque
from collections.abc import Iterator
from time import monotonic

from shepherd.backends.inprocess.updates import Failed, Finished
from shepherd.backends.llamacpp.cache.sequence import Sequence
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.scheduling.answers import Answers
from shepherd.backends.llamacpp.scheduling.job import Job, Phase, Post
from shepherd.backends.llamacpp.scheduling.planner import BatchTimer, PrefillPace
from shepherd.backends.llamacpp.scheduling.turns import (
    SHORT_PROMPT,
    next_in_turn,
    next_job,
    overtaken_job,
    surplus_job,
)
from shepherd.errors import BackendError, ContextFullError
from shepherd.events import FinishReason


class JobQueue:
    """Gives sequences to jobs, and takes them back. Owner thread only.

    `active` are the jobs with a sequence, oldest first.
    """

    def __init__(
        self,
        pool: SequencePool,
        post: Post,
        timer: BatchTimer,
        answers: Answers,
        pace: PrefillPace,
    ) -> None:
        self.active: list[Job] = []
        self._pool = pool
        self._post = post
        self._timer = timer
        self._answers = answers
        self._pace = pace
        self._waiting: deque[Job] = deque()
        self._memory_full = False

    @property
    def waiting(self) -> int:
        """The number of jobs without a sequence; any thread may read it."""
        return len(self._waiting)

    @property
    def jobs(self) -> list[Job]:
        """All jobs that are not done, oldest first."""
        return [*self.active, *self._waiting]

    @property
    def idle(self) -> bool:
        """Whether no job can be continued, admitted or cancelled."""
        if any(job.runnable or job.cancelled for job in self.active):
            return False
        return not (self.can_admit() or any(job.cancelled for job in self._waiting))

    def submit(self, job: Job) -> None:
        """Let a job wait for a sequence."""
        job.submitted = monotonic()
        job.missing = len(job.tokens)
        if self._in_turn and self.active and job.missing > SHORT_PROMPT:
            job.missing -= self._pool.known(job.tokens)
        self._waiting.append(job)

    def can_admit(self) -> bool:
        """Whether a job waits for which there is a sequence."""
        return bool(self._waiting) and self._next() is not None

    def admit(self) -> Iterator[Job]:
        """Give sequences to waiting jobs; yields each such job."""
        self._overtake()
        while self._waiting and (job := self._next()):
            if not self._has_sequence():
                self._preempt()
            self._waiting.remove(job)
            self._timer.settle()
            job.sequence = sequence = self._pool.acquire(job.tokens, self._pace.speed)
            if job.measures and job.prompt_meter is not None:
                self._pool.clear(sequence)
                job.prompt_meter.restart()
            if not job.ready:
                self._note_cached(job, sequence)
                job.missing = job.pending
            job.phase = Phase.PREFILL
            self.active.append(job)
            yield job

    def finish(self, job: Job, reason: FinishReason) -> None:
        """End a job with the answer that it has."""
        self._timer.settle()
        self._answers.end(job)
        answer = tuple(job.tokens[job.prompt_length :])
        stats = job.stats(self._answers.context_size)
        self.end(job)
        self._post(job, Finished(reason, stats, answer, job.stop.hit or ""))

    def fail(self, job: Job, error: BackendError) -> None:
        """End a job with an error."""
        if job.phase is not Phase.DONE:
            self.end(job)
            self._post(job, Failed(error))

    def abandon(self, error: BackendError) -> None:
        """End all jobs with an error before the engine is freed; the memory is not changed."""
        for job in self.jobs:
            job.phase = Phase.DONE
            if job.sampler is not None:
                job.sampler.close()
            self._post(job, Failed(BackendError(str(error))))
        self.active.clear()
        self._waiting.clear()

    def end(self, job: Job) -> None:
        """End a job without a word; its tokens stay in its sequence."""
        job.phase = Phase.DONE
        self._memory_full = False
        if job in self.active:
            self.active.remove(job)
        elif job in self._waiting:
            self._waiting.remove(job)
        self._release_sequence(job)
        if job.sampler is not None:
            job.sampler.close()
            job.sampler = None

    def make_room(self) -> None:
        """Free shared memory: that of idle sequences, or that of the youngest job, which waits."""
        if self._pool.drop_idle():
            return
        youngest = self.active[-1]
        if len(self.active) == 1:
            self._context_is_full(youngest)
            return
        if youngest.sequence is not None:
            self._pool.swap_out(youngest.sequence)
        self._requeue(youngest)
        self._memory_full = True

    def _next(self) -> Job | None:
        """The waiting job to admit now, if there is a sequence for it."""
        if not self._has_sequence() and surplus_job(self._waiting, self.active) is None:
            return None
        if self._in_turn:
            return next_in_turn(self._waiting, self.active, self._pace.speed)
        return next_job(self._waiting, self.active)

    @property
    def _in_turn(self) -> bool:
        """Whether long prompts are read one after the other."""
        return self._pool.is_crowded_by_others

    def _has_sequence(self) -> bool:
        return not (self._memory_full and self.active) and self._pool.has_free()

    def _preempt(self) -> None:
        """Take one sequence from a request that has several."""
        job = surplus_job(self._waiting, self.active)
        if job is not None:
            self._requeue(job)
            self._memory_full = False

    def _overtake(self) -> None:
        """Interrupt a long prompt for a much shorter one, which gets another sequence."""
        if self._waiting and self._in_turn and self._has_sequence():
            job = overtaken_job(self._waiting, self.active, self._pace.speed)
            if job is not None:
                self._requeue(job)

    def _requeue(self, job: Job) -> None:
        """Move an active job back to the queue; it keeps its tokens."""
        job.missing = job.pending
        job.interrupted = True
        self.active.remove(job)
        self._release_sequence(job)
        job.phase = Phase.WAITING
        self._waiting.appendleft(job)

    @staticmethod
    def _note_cached(job: Job, sequence: Sequence) -> None:
        """Note what was found in the cache, without what the job itself has read before."""
        cached, restored = len(sequence.tokens), sequence.restored
        job.cached = min(job.cached, cached) if job.interrupted else cached
        job.restored = min(job.restored, restored) if job.interrupted else restored

    def _release_sequence(self, job: Job) -> None:
        self._timer.settle()
        if job.sequence is not None:
            self._pool.release(job.sequence)
            job.sequence = None

    def _context_is_full(self, job: Job) -> None:
        if job.generated:
            self.finish(job, FinishReason.LENGTH)
            return
        size = self._answers.context_size
        message = (
            f"request ({job.prompt_length} tokens) exceeds the available context size "
            f"({size} tokens)"
        )
        self.fail(job, ContextFullError(message, max(1, job.prompt_length - size)))
