"""Continuous batching: each step decodes one batch with tokens of many requests."""

from collections import deque
from collections.abc import Callable
from time import perf_counter

from shepherd.backends.inprocess.updates import Failed, Finished, Progress, Ready
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import NO_ROOM, NativeContext
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.rpc.workers import WorkerLostError
from shepherd.backends.llamacpp.sampling.sampler import SamplerChain
from shepherd.backends.llamacpp.scheduling.answers import Answers
from shepherd.backends.llamacpp.scheduling.decode_loop import DecodeLoop
from shepherd.backends.llamacpp.scheduling.job import Job, Phase, Post
from shepherd.backends.llamacpp.scheduling.planner import Part, Planner
from shepherd.backends.llamacpp.scheduling.shares import PrefillPace, next_job, surplus_job
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.backends.llamacpp.scheduling.timing import BatchTimer
from shepherd.backends.llamacpp.vision.encoder import ImageEncoder
from shepherd.backends.llamacpp.vision.parts import ImageEncodingError
from shepherd.errors import BackendError, ContextFullError
from shepherd.events import FinishReason


def _never() -> bool:
    return False


class Scheduler:
    """Owns the sequences and runs one batch per step. Owner thread only."""

    def __init__(
        self,
        context: NativeContext,
        pool: SequencePool,
        vocab: Vocab,
        post: Post,
        speculator: Speculator | None = None,
        *,
        jumps_ahead: bool = True,
    ) -> None:
        """`jumps_ahead`: text that a grammar forces is decoded at once instead of sampled."""
        self.images: ImageEncoder | None = None
        """Makes the embeddings of images; None if no job has images."""
        self._context = context
        self._pool = pool
        self._post = post
        self._vocab = vocab
        self._waiting: deque[Job] = deque()
        self._active: list[Job] = []
        self._memory_full = False
        self._is_ready = False
        self._pace = PrefillPace(context.batch_size, context.limits)
        self._planner = Planner(context, pool, self._pace, speculator)
        self._timer = BatchTimer(context.stopwatch, self._planner.note)
        self._answers = Answers(vocab, context.size, post, jumps_ahead=jumps_ahead)
        self._loop = DecodeLoop(context, pool, self._planner, self._timer, self._answers)

    @property
    def waiting(self) -> int:
        """The number of jobs without a sequence; any thread may read it."""
        return len(self._waiting)

    @property
    def jobs(self) -> list[Job]:
        """All jobs that are not done, oldest first."""
        return [*self._active, *self._waiting]

    @property
    def pool(self) -> SequencePool:
        """The pool of sequences, with the cache's tiers."""
        return self._pool

    @property
    def prompt_speed(self) -> float:
        """The measured speed of prompts in tokens per second; 0 before any measurement."""
        return self._pace.speed

    def submit(self, job: Job) -> None:
        """Queue a job; its prompt is decoded in a later step."""
        self._waiting.append(job)

    def start(self, job: Job, max_tokens: int) -> None:
        """Start to generate, as soon as the prompt is in memory."""
        if job.phase is Phase.DONE:
            return
        job.max_tokens = max_tokens
        job.started = True
        job.decode_started = perf_counter()
        if job.phase is Phase.PARKED:
            self._begin_generating(job)

    def release(self, job: Job) -> None:
        """Give up a job; its tokens stay in its sequence."""
        if job.phase is not Phase.DONE:
            self._end(job)

    def fail(self, job: Job, error: BackendError) -> None:
        """End a job with an error."""
        if job.phase is not Phase.DONE:
            self._end(job)
            self._post(job, Failed(error))

    def abandon(self, error: BackendError) -> None:
        """End all jobs with an error before the engine is freed; the memory is not changed."""
        for job in self.jobs:
            job.phase = Phase.DONE
            if job.sampler is not None:
                job.sampler.close()
            self._post(job, Failed(BackendError(str(error))))
        self._active.clear()
        self._waiting.clear()

    def idle(self) -> bool:
        """Whether a step has nothing to do."""
        if any(job.runnable or job.cancelled for job in self._active):
            return False
        return not (self._can_admit() or any(job.cancelled for job in self._waiting))

    @property
    def steady(self) -> bool:
        """Whether the next step only continues running answers."""
        if self._can_admit():
            return False
        return all(job.phase is not Phase.PREFILL for job in self._active)

    def pop_ready(self) -> bool:
        """Whether a request became ready to generate since the last call."""
        is_ready, self._is_ready = self._is_ready, False
        return is_ready

    def step(self, quiet: Callable[[], bool] = _never) -> None:
        """Admit waiting jobs, decode a batch, sample.

        While `quiet()` is true, a step that only continues answers decodes more batches, for a few
        milliseconds.
        """
        for job in [job for job in self.jobs if job.cancelled]:
            self._cancel(job)
        self._admit()
        self._decode_image()
        parts = self._planner.plan(self._active)
        if parts and all(part.job.phase is Phase.GENERATING and part.last for part in parts):
            parts = self._continue_answers(parts, quiet)
        if parts:
            self._run(parts)

    def _can_admit(self) -> bool:
        if not self._waiting:
            return False
        return self._has_sequence() or surplus_job(self._waiting, self._active) is not None

    def _has_sequence(self) -> bool:
        return not (self._memory_full and self._active) and self._pool.has_free()

    def _admit(self) -> None:
        while self._can_admit():
            if not self._has_sequence():
                self._preempt()
            job = next_job(self._waiting, self._active)
            self._waiting.remove(job)
            self._timer.settle()
            job.sequence = sequence = self._pool.acquire(job.tokens, self._pace.speed)
            if job.measures and job.prompt_meter is not None:
                self._pool.clear(sequence)
                job.prompt_meter.restart()
            if not job.ready:
                job.cached = len(sequence.tokens)
                job.restored = sequence.restored
            job.phase = Phase.PREFILL
            self._active.append(job)
            if self.images is not None:
                self.images.request(job.missing_images(), job.needs_images)

    def _preempt(self) -> None:
        """Take one sequence from a request that has several."""
        job = surplus_job(self._waiting, self._active)
        if job is not None:
            self._requeue(job)
            self._memory_full = False

    def _decode_image(self) -> None:
        """Decode tokens of one image, if the embeddings of one are there."""
        job = next((job for job in self._active if job.next_image and job.runnable), None)
        if job is None:
            return
        try:
            self._run(self._planner.image_parts(job, self._active))
        except ImageEncodingError as error:
            self.fail(job, BackendError(str(error)))

    def _continue_answers(self, parts: list[Part], quiet: Callable[[], bool]) -> list[Part]:
        """Decode one token of each answer, or several; returns the parts of a larger batch."""
        rest: list[Part] = []
        try:
            rest = self._loop.run(parts, quiet)
        except BackendError as error:
            self._fail_parts(parts, error)
        for job, reason in self._loop.endings:
            if isinstance(reason, BackendError):
                self.fail(job, reason)
            elif job.phase is not Phase.DONE:
                self._finish(job, reason)
        return [part for part in rest if part.job.phase is not Phase.DONE]

    def _fail_parts(self, parts: list[Part], error: BackendError) -> None:
        if isinstance(error, WorkerLostError):
            raise error  # the whole engine is of no use without the worker
        for part in parts:
            self._pool.resync(part.sequence)
            self.fail(part.job, BackendError(str(error)))

    def _run(self, parts: list[Part]) -> None:
        self._timer.begin()
        try:
            code = self._planner.decode(parts)
        except BackendError as error:
            self._fail_parts(parts, error)
            return
        if code == NO_ROOM:
            self._handle_full_memory(parts)
            return
        self._timer.returned()
        extended = [self._extend(part) for part in parts]
        self._timer.add(parts, self._pace.speed)
        index = -1
        for part, is_extended in zip(parts, extended, strict=True):
            index += len(part.tokens)
            if is_extended:
                self._decoded(part, index)

    def _extend(self, part: Part) -> bool:
        """Note the tokens of a part; False if its job has failed."""
        try:
            self._pool.extend(part.sequence, part.tokens)
        except BackendError as error:
            self.fail(part.job, error)
            return False
        return True

    def _decoded(self, part: Part, index: int) -> None:
        """Read the results of a part that ends at the batch index `index`."""
        job = part.job
        self._pool.checkpoint(part.sequence)
        if part.image is not None:
            job.forget_images()
        if not job.ready:
            job.measure(self._context, len(part.tokens), index)
        if not part.completes:
            if not job.ready:
                self._post(job, Progress(len(part.sequence.tokens), job.prompt_length, job.cached))
            return
        if job.pending_token is not None:
            self._park(job)
            return
        try:
            if job.ready:
                self._continue(part, index - len(part.drafted))
            else:
                self._sample_first(job, index)
        except BackendError as error:
            self.fail(job, error)

    def _sample_first(self, job: Job, index: int) -> None:
        """Sample the first token and keep it until the job is started."""
        job.pending_token = self._sampler(job).sample(self._context, index)
        job.ready = True
        self._is_ready = not job.started
        self._post(job, Ready(job.cached))
        self._park(job)

    def _continue(self, part: Part, index: int) -> None:
        """Sample after the token at `index`, then after each drafted token that was right.

        Drafts do not change the model's choice; the rest of a draft is dropped.
        """
        job, drafted = part.job, part.drafted
        known = len(part.sequence.tokens) - len(drafted)
        sampled = accepted = 0
        try:
            for expected in (*drafted, None):
                token = self._sampler(job).sample(self._context, index + sampled)
                sampled += 1
                job.decodes += 1
                accepted += token == expected
                self._accept(job, token)
                if token != expected or job.phase is Phase.DONE or job.ends_thought:
                    break
        finally:
            if drafted:
                self._planner.note_draft(part, accepted)
                self._pool.trim(part.sequence, known + max(0, sampled - 1))
        self._jump_ahead(job)

    def _jump_ahead(self, job: Job) -> None:
        """Add the tokens that the grammar forces; the next batch decodes them together."""
        if job.phase is not Phase.GENERATING:
            return
        try:
            reason = self._answers.jump_ahead(job)
        except BackendError as error:
            self.fail(job, error)
            return
        self._answers.post_text(job)
        if reason is not None:
            self._finish(job, reason)

    def _park(self, job: Job) -> None:
        job.phase = Phase.PARKED
        if job.started:
            self._begin_generating(job)

    def _begin_generating(self, job: Job) -> None:
        job.phase = Phase.GENERATING
        token, job.pending_token = job.pending_token, None
        if token is not None:
            self._accept(job, token)
            self._jump_ahead(job)

    def _accept(self, job: Job, token: int) -> None:
        """Add a sampled token to the answer, or end the answer with it."""
        job.phase = Phase.GENERATING
        reason = self._answers.accept(job, token)
        self._answers.post_text(job)
        if reason is not None:
            self._finish(job, reason)

    def _finish(self, job: Job, reason: FinishReason) -> None:
        self._timer.settle()
        self._answers.post_end(job)
        answer = tuple(job.tokens[job.prompt_length :])
        stats = job.stats(self._context.size)
        self._end(job)
        self._post(job, Finished(reason, stats, answer, job.stop.hit or ""))

    def _cancel(self, job: Job) -> None:
        self._finish(job, FinishReason.CANCELLED)

    def _end(self, job: Job) -> None:
        job.phase = Phase.DONE
        self._memory_full = False
        if job in self._active:
            self._active.remove(job)
        elif job in self._waiting:
            self._waiting.remove(job)
        self._release_sequence(job)
        if job.sampler is not None:
            job.sampler.close()
            job.sampler = None

    def _release_sequence(self, job: Job) -> None:
        self._timer.settle()
        if job.sequence is not None:
            self._pool.release(job.sequence)
            job.sequence = None

    def _sampler(self, job: Job) -> SamplerChain:
        if job.sampler is None:
            job.sampler = SamplerChain(
                job.sampling, self._vocab, self._context.size, job.constraint
            )
            job.sampler.prime(job.tokens)
        return job.sampler

    def _handle_full_memory(self, parts: list[Part]) -> None:
        """Free shared memory: drop drafts, then idle sequences, then requeue the youngest job."""
        self._timer.settle()
        if any(part.drafted for part in parts):
            self._run([part.without_draft() for part in parts])
            return
        if self._pool.drop_idle():
            return
        youngest = self._active[-1]
        if len(self._active) == 1:
            self._context_is_full(youngest)
            return
        if youngest.sequence is not None:
            self._pool.swap_out(youngest.sequence)
        self._requeue(youngest)
        self._memory_full = True

    def _requeue(self, job: Job) -> None:
        """Move an active job back to the queue; it keeps its tokens."""
        self._active.remove(job)
        self._release_sequence(job)
        job.phase = Phase.WAITING
        self._waiting.appendleft(job)

    def _context_is_full(self, job: Job) -> None:
        if job.generated:
            self._finish(job, FinishReason.LENGTH)
            return
        size = self._context.size
        message = (
            f"request ({job.prompt_length} tokens) exceeds the available context size "
            f"({size} tokens)"
        )
        self.fail(job, ContextFullError(message, max(1, job.prompt_length - size)))
