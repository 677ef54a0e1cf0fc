"""The jobs that wait and those that have a sequence, from their admission to their end."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import monotonic

from msgspec import Struct, field

from shepherd import errors, events
from shepherd.backends.inprocess.answer import Failed, Finished, Queued
from shepherd.backends.llamacpp.cache.sequence import CachedSequence
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.scheduling.accounts import READING_SLICE, Accounts, turn
from shepherd.backends.llamacpp.scheduling.answers import Answers
from shepherd.backends.llamacpp.scheduling.job import Job, Phase, Post
from shepherd.backends.llamacpp.scheduling.planner import BatchTimer, PrefillPace

SHORT_PROMPT = 256
"""Tokens that are read beside another prompt at once."""
RETRY_SECONDS = 0.5
"""The time until a prompt whose saved state did not fit tries again."""
ASSUMED_SPEED = 250.0
"""Tokens of prompts per second, before any measurement."""


class JobQueue(Struct, eq=False):
    """Gives sequences to jobs, and takes them back. Owner thread only.

    `active` are the jobs with a sequence, oldest first.
    """

    _pool: SequencePool
    _post: Post
    _timer: BatchTimer
    _answers: Answers
    _pace: PrefillPace
    accounts: Accounts
    active: list[Job] = field(default_factory=list[Job])
    seconds_per_place: float = 0.0
    """The seconds after which the next waiting job probably gets a sequence; 0 is unknown."""
    _job_seconds: float = 0.0
    """The mean of the last jobs, from their first sequence to their end; 0 before any."""
    _waiting: deque[Job] = field(default_factory=deque[Job])
    _full_until: float = 0.0
    """Until a job ends there is a lack of memory, and nobody else would find room meanwhile."""

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
        # A step also ends the cancelled ones.
        if any(job.runnable or job.cancelled for job in self.active):
            return False
        can_admit = bool(self._waiting) and self._job_to_admit() is not None
        return not (can_admit or any(job.cancelled for job in self._waiting))

    def submit(self, job: Job) -> None:
        """Let a job wait for a sequence."""
        job.submitted = monotonic()
        self.accounts.open(job)
        if job.returns is None:  # of its session, so that nothing of that leaves meanwhile
            job.returns = self._pool.sessions.ask(job.query, job.session)
        job.missing_tokens = len(job.tokens)
        # Only where prompts are read in turn do these tokens decide who is next, and looking for
        # cached ones takes time.
        if self._reads_in_turn and self.active and job.missing_tokens > SHORT_PROMPT:
            job.missing_tokens -= self._pool.known(job.query)
        self._waiting.append(job)

    def admit(self) -> Iterator[Job]:
        """Give sequences to waiting jobs; yields each such job."""
        self._interrupt_long_prompt()
        while self._waiting and (job := self._job_to_admit()):
            surplus = None if self._has_sequence() else self._surplus()
            if surplus is not None:
                self._requeue(surplus)
                self._full_until = 0.0
            self._timer.settle()  # moving memory takes time that is not the queued batch's
            sequence = self._acquire(job)
            if sequence is None:
                return
            self._waiting.remove(job)
            job.sequence = sequence
            if job.measures and job.prompt_meter is not None:
                # It needs the logits of each token, which the cache does not have.
                self._pool.mirror.clear(sequence)
                job.prompt_meter.logprobs.clear()  # it begins again
            if not job.prompt_done:  # else it goes on with its answer, and nothing new was cached
                self._note_cached(job, sequence)
                job.missing_tokens = job.pending
            job.phase = Phase.PREFILL
            job.place = 0
            job.admitted = job.admitted or monotonic()
            self.active.append(job)
            yield job

    def finish(self, job: Job, reason: events.FinishReason) -> None:
        """End a job with the answer that it has."""
        self._timer.settle()  # so that the job's statistics have the time of all its batches
        self._answers.end(job)
        answer = tuple(job.tokens[job.prompt_length :])
        stats = job.stats(self._answers.context_size)
        self.end(job)
        self._post(job, Finished(reason, stats, answer, job.stop.hit or ""))

    def fail(self, job: Job, error: errors.BackendError) -> None:
        """End a job with an error."""
        if job.phase is not Phase.DONE:
            self.end(job)
            self._post(job, Failed(error))

    def abandon(self, error: errors.BackendError) -> None:
        """End all jobs with an error before the engine is freed; the memory is not changed."""
        for job in self.jobs:
            job.phase = Phase.DONE
            if job.sampler is not None:
                job.sampler.close()
            self._post(job, Failed(errors.BackendError(str(error))))
        self.active.clear()
        self._waiting.clear()

    def end(self, job: Job) -> None:
        """End a job without an update; its tokens stay in its sequence."""
        job.phase = Phase.DONE
        self.accounts.close(job)
        if job.admitted:
            seconds = monotonic() - job.admitted
            self._job_seconds = (self._job_seconds + seconds) / 2 if self._job_seconds else seconds
        self._full_until = 0.0  # its sequence can be swapped out now
        if job.returns is not None:
            job.returns.note_end()
        if job in self.active:
            self.active.remove(job)
        elif job in self._waiting:
            self._waiting.remove(job)
        self._release_sequence(job)
        if job.sampler is not None:
            job.sampler.close()
            job.sampler = None

    def make_room(self) -> None:
        """Free shared memory: that of idle sequences, or that of a job, which waits.

        It is the youngest one of the tenant that comes last.
        """
        if self._pool.drop_idle(sum(job.pending for job in self.active)):
            return
        if len(self.active) == 1:  # it has all memory, and that is not enough
            self._end_at_full_context(self.active[0])
            return
        self._requeue(max(reversed(self.active), key=turn))
        self._full_until = inf

    def tell_places(self) -> None:
        """Tell the jobs that wait how many come before them, and when they will probably start."""
        if not self._waiting:
            return
        self.seconds_per_place = self._job_seconds / max(1, len(self.active))
        for place, job in enumerate(sorted(self._waiting, key=turn), 1):
            if job.place != place:
                job.place = place
                self._post(job, Queued(place, place * self.seconds_per_place))

    def _acquire(self, job: Job) -> CachedSequence | None:
        """A sequence for a job; None if its saved state has to wait for the end of another job."""
        now = monotonic()
        waited = now - job.blocked if job.blocked else 0.0
        sequence = self._pool.acquire(job.query, self._pace.speed, waited, job.returns)
        if sequence is None:
            job.blocked = job.blocked or now
            self._full_until = now + RETRY_SECONDS
        else:
            job.blocked = 0.0
        return sequence

    def _job_to_admit(self) -> Job | None:
        """The waiting job to admit now, if there is a sequence for it."""
        if not self._has_sequence() and self._surplus() is None:
            return None
        if self._reads_in_turn:
            return next_in_turn(self._waiting, self.active, self._pace.speed)
        return next_job(self._waiting, self.active)

    def _surplus(self) -> Job | None:
        """The job whose sequence another one needs more; None if there is none.

        A request that has several can spare one, and so can a tenant that is over its share.
        """
        return surplus_job(self._waiting, self.active) or self.accounts.preempted(
            self._waiting, self.active, self._loss
        )

    def _loss(self, job: Job) -> float:
        """The seconds that reading the tokens of an active job again takes, if they are lost."""
        if job.sequence is None or self._pool.is_kept(job.sequence):
            return 0.0
        return len(job.sequence.tokens) / (self._pace.speed or ASSUMED_SPEED)

    @property
    def _reads_in_turn(self) -> bool:
        """Whether long prompts are read one after the other."""
        return self._pool.is_crowded_by_others

    def _has_sequence(self) -> bool:
        """Whether a waiting job can get a sequence, and memory for it."""
        is_full = bool(self.active) and monotonic() < self._full_until
        return not is_full and self._pool.has_free()

    def _interrupt_long_prompt(self) -> None:
        """Interrupt a long prompt for a much shorter one that waits and has a sequence to get."""
        if self._waiting and self._reads_in_turn and self._has_sequence():
            job = overtaken_job(self._waiting, self.active, self._pace.speed)
            if job is not None:
                self._requeue(job)

    def _requeue(self, job: Job) -> None:
        """Move an active job to the front of the queue; it keeps its tokens."""
        job.missing_tokens = job.pending
        job.interrupted = True
        self.active.remove(job)
        self._release_sequence(job)
        job.phase = Phase.WAITING
        self._waiting.appendleft(job)

    @staticmethod
    def _note_cached(job: Job, sequence: CachedSequence) -> None:
        """Note what was found in the cache, without what the job itself has read before."""
        cached, restored = len(sequence.tokens), sequence.restored
        if job.interrupted:  # the rest was cached by its own first part
            cached = min(job.cached_tokens, cached)
            restored = min(job.restored_tokens, restored)
        job.cached_tokens, job.restored_tokens = cached, restored

    def _release_sequence(self, job: Job) -> None:
        """Give back its sequence, after the batches that are queued for it."""
        self._timer.settle()
        if job.sequence is not None:
            self._pool.release(job.sequence)
            job.sequence = None

    def _end_at_full_context(self, job: Job) -> None:
        """End an answer that fills the context, or refuse a prompt that is too long for it."""
        if job.generated:
            self.finish(job, events.FinishReason.LENGTH)
            return
        size = self._answers.context_size
        message = (
            f"request ({job.prompt_length} tokens) exceeds the available context size "
            f"({size} tokens)"
        )
        self.fail(job, errors.ContextFullError(message, max(1, job.prompt_length - size)))


def next_job(waiting: Sequence[Job], active: Sequence[Job]) -> Job | None:
    """The first waiting job of the tenant that comes first, and of its request with the fewest
    sequences."""
    counts = Counter(job.request for job in active)
    return min(waiting, key=lambda job: (turn(job), counts[job.request]), default=None)


def next_in_turn(waiting: Sequence[Job], active: Sequence[Job], speed: float) -> Job | None:
    """As `next_job`, but long prompts are read one after the other; None if all have to wait.

    Attention takes longer beside the tokens of others: Gemma 3 270M reads 128 tokens behind 6,144
    in 0.47 s alone, and in 0.58 s beside another 6,144. `speed` is in tokens per second, 0 if
    unknown.
    """
    counts = Counter(job.request for job in active)
    priority = _priorities(speed)
    long_ones_wait = _reader(active) is not None
    able = [job for job in waiting if not (long_ones_wait and _is_long(job))]
    # First the tenants and the requests as in `next_job`.
    return max(
        able, key=lambda job: (-turn(job), -counts[job.request], priority(job)), default=None
    )


def overtaken_job(waiting: Sequence[Job], active: Sequence[Job], speed: float) -> Job | None:
    """The job whose long prompt should wait for one of another tenant, or for a shorter one.

    For the same tenant it is interrupted only if the other one is less than half as long.
    """
    reader, priority = _reader(active), _priorities(speed)
    # Short prompts need no turn: they are read beside the long one.
    long_ones = (job for job in waiting if _is_long(job))
    first = max(long_ones, key=lambda job: (-turn(job), priority(job)), default=None)
    if reader is None or first is None or reader.measures:  # measuring would begin again
        return None
    if first.account.tenant.name != reader.account.tenant.name:
        return reader if turn(first) + READING_SLICE < turn(reader) else None
    is_shorter = 2 * first.missing_tokens < reader.pending
    return reader if is_shorter and priority(first) > priority(reader) else None


def surplus_job(waiting: Sequence[Job], active: Sequence[Job]) -> Job | None:
    """The job whose sequence another request needs more; None if there is none.

    It is the youngest job of the request with the most sequences, if that request has several.
    """
    counts = Counter(job.request for job in active)
    if all(counts[job.request] for job in waiting):  # nobody waits who has no sequence at all
        return None
    # The youngest first, because `max` takes the first of equals.
    several = [job for job in reversed(active) if counts[job.request] > 1]
    return max(several, key=lambda job: counts[job.request], default=None)


def _reader(active: Sequence[Job]) -> Job | None:
    """The job whose long prompt is being read."""
    return next((job for job in active if job.runnable and _is_long(job)), None)


def _is_long(job: Job) -> bool:
    """Whether a long part of its prompt is still to be read."""
    return not job.prompt_done and job.missing_tokens > SHORT_PROMPT


def _priorities(speed: float) -> Callable[[Job], float]:
    """High for short prompts, and higher with each second of waiting, so every turn comes.

    An exponent of 1 is the highest response ratio. Four agents of the replay benchmark then wait
    for the first text for 5.2 s (median) and 14 s (p90), with 1.5 for 3.8 and 14 s, and with the
    shortest first for 2.7 and 24 s.
    """
    now = monotonic()  # one time for all, so that of two alike the older one is first

    def priority(job: Job) -> float:
        if job.prompt_done:  # it has begun its answer, and somebody reads it
            return inf
        tokens = job.pending if job.sequence is not None else job.missing_tokens
        # Without a minimum, tiny prompts would have priorities without end after a short wait.
        seconds = max(tokens, SHORT_PROMPT) / (speed or ASSUMED_SPEED)
        return (now - job.submitted + seconds) / seconds**1.5

    return priority
