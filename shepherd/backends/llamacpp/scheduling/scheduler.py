"""One step of the engine: a batch with tokens of many requests (continuous batching).

Weights are read once per batch, so a batch of many tokens takes hardly longer than one of a single
token. `Scheduler.step` joins what all requests need next: it ends cancelled jobs, gives sequences
to waiting ones, plans a batch, decodes it, and samples for each job whose tokens are all in memory.
While only answers run, `DecodeLoop` decodes and samples again and again.

A job is WAITING for a sequence, then its prompt is read in several steps (PREFILL). The first token
is sampled at once, but the job is PARKED until somebody starts it: the caller learns that the
prompt fits before it promises an answer. Then it is GENERATING, until it is DONE. llama.cpp's
memory is changed only through the pool, whose mirror knows every token in it.
"""

from collections.abc import Callable
from time import perf_counter

from shepherd import errors, events
from shepherd.backends.inprocess.answer import Progress, Ready
from shepherd.backends.llamacpp.cache.sequence import CachedSequence
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import (
    ABORTED,
    DECODED,
    NO_ROOM,
    NativeContext,
    Span,
)
from shepherd.backends.llamacpp.rpc.workers import WorkerLostError
from shepherd.backends.llamacpp.sampling.candidates import logits_row
from shepherd.backends.llamacpp.sampling.choice import Choice
from shepherd.backends.llamacpp.sampling.sampler import SamplerChain
from shepherd.backends.llamacpp.scheduling.accounts import Accounts
from shepherd.backends.llamacpp.scheduling.answers import Answers, DecodeLoop
from shepherd.backends.llamacpp.scheduling.job import Job, Phase, Post
from shepherd.backends.llamacpp.scheduling.planner import BatchTimer, Part, Planner, PrefillPace
from shepherd.backends.llamacpp.scheduling.queue import JobQueue
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.backends.llamacpp.vision.encoder import ImageEncoder
from shepherd.backends.llamacpp.vision.parts import ImageEncodingError


def _never() -> bool:
    """The `quiet` of a caller who wants one batch per step."""
    return False


class Scheduler:
    """Owns the sequences and runs one batch per step. Owner thread only."""

    def __init__(
        self,
        context: NativeContext,
        pool: SequencePool,
        post: Post,
        speculator: Speculator | None = None,
        images: ImageEncoder | None = None,
        *,
        jumps_ahead: bool = True,
    ) -> None:
        """`images` makes the embeddings of images; None if no job has images.

        `jumps_ahead`: text that a grammar forces is decoded at once instead of sampled.
        """
        self._context = context
        self._images = images
        self.pool = pool
        self._post = post
        self._vocab = vocab = context.vocab
        self._became_ready = False
        self._is_quiet: Callable[[], bool] = _never
        """Whether no command waits for the end of the step."""
        self.pace = PrefillPace(context.batch_size, context.limits)
        accounts = Accounts()
        self._planner = Planner(context, pool, self.pace, speculator, accounts)
        self._timer = BatchTimer(context.stopwatch, self.pace, self._planner.note)
        self._answers = Answers(
            vocab,
            context.size,
            post,
            jumps_ahead=jumps_ahead,
            weighs=pool.rolls_back,
        )
        # All jobs, from their admission to their end; a job is submitted there.
        self.queue = JobQueue(pool, post, self._timer, self._answers, self.pace, accounts)
        self._loop = DecodeLoop(context, pool, self._planner, self._timer, self._answers)

    def start(self, job: Job, max_tokens: int) -> None:
        """Start to generate, as soon as the prompt is in memory; `max_tokens` 0 is no limit."""
        if job.phase is Phase.DONE:  # it has failed or was cancelled before the command came
            return
        job.max_tokens = max_tokens
        job.started = True
        job.decode_started = perf_counter()
        if job.phase is Phase.PARKED:
            self._begin_generating(job)

    def release(self, job: Job) -> None:
        """Give up a job; its tokens stay in its sequence. Jobs that are done have none any more."""
        if job.phase is not Phase.DONE:
            self.queue.end(job)

    def pop_ready(self) -> bool:
        """Whether a request became ready to generate since the last call."""
        became_ready, self._became_ready = self._became_ready, False
        return became_ready

    def step(self, quiet: Callable[[], bool] = _never) -> None:
        """Admit waiting jobs, decode a batch, sample.

        While `quiet()` is true, a step that only continues answers decodes more batches, for a few
        milliseconds.
        """
        self._is_quiet = quiet
        for job in self.queue.jobs:  # a copy, from which finished jobs do not vanish
            if job.cancelled:
                self.queue.finish(job, events.FinishReason.CANCELLED)
        for job in self.queue.admit():
            if self._images is not None:
                self._images.request(job.missing_images(), job.needs_images)
        self.queue.tell_places()
        self._decode_image()
        parts = self._planner.plan(self.queue.active, queued=self.queue.waiting > 0)
        # Only answers, each with the token that was sampled last: the quick loop decodes those.
        if parts and all(
            part.job.phase is Phase.GENERATING and part.completes_job and len(part.tokens) == 1
            for part in parts
        ):
            parts = self._continue_answers(parts)
        if parts:
            self._run(parts)
        for job in self.queue.jobs:
            if job.sampler is not None and job.sampler.choice is not None:
                self._choose(job, job.sampler, job.sampler.choice)

    def _decode_image(self) -> None:
        """Decode tokens of one image as a batch of its own, if the embeddings of one are there."""
        job = next((job for job in self.queue.active if job.next_image and job.runnable), None)
        if job is None:
            return
        try:
            self._run(self._planner.image_parts(job, self.queue.active))
        except ImageEncodingError as error:
            self.queue.fail(job, errors.BackendError(str(error)))

    def _continue_answers(self, parts: list[Part]) -> list[Part]:
        """Decode one token of each answer, or several; returns the parts of a larger batch."""
        undecoded: list[Part] = []
        try:
            undecoded = self._loop.run(parts, self._is_quiet)
        except errors.BackendError as error:
            self._fail_parts(parts, error)
        for job, reason in self._loop.endings:
            if isinstance(reason, errors.BackendError):
                self.queue.fail(job, reason)
            else:
                self.queue.finish(job, reason)
        return [part for part in undecoded if part.job.phase is not Phase.DONE]

    def _fail_parts(self, parts: list[Part], error: errors.BackendError) -> None:
        """Fail the jobs of a batch; what llama.cpp has kept of it is unknown, so it is asked."""
        if isinstance(error, WorkerLostError):
            raise error  # the whole engine is of no use without the worker
        for part in parts:
            self.pool.mirror.resync(part.sequence)
            self.queue.fail(part.job, errors.BackendError(str(error)))

    def _run(self, parts: list[Part]) -> None:
        """Decode a batch, note its tokens, and read its results."""
        self._timer.begin()
        try:
            code = self._planner.decode(parts)
        except errors.BackendError as error:
            self._fail_parts(parts, error)
            return
        if code == NO_ROOM:
            self._handle_full_memory(parts)
            return
        if code == ABORTED:  # a command came; llama.cpp may have kept a part of the batch
            if not self._is_quiet():  # else the flag was left from a command that was run before
                self._planner.note_interrupted()
            for part in parts:
                self.pool.mirror.resync(part.sequence)
            return
        self._timer.returned()
        extended = [self._extend(part) for part in parts]
        self._timer.add(parts)
        last_index = -1  # of the last token of each part in the batch
        for part, is_extended in zip(parts, extended, strict=True):
            last_index += len(part.tokens)
            if is_extended:
                self._read_results(part, last_index)

    def _extend(self, part: Part) -> bool:
        """Note the tokens of a part; False if its job has failed."""
        try:
            self.pool.mirror.extend(part.sequence, part.tokens, len(part.draft_tokens))
        except errors.BackendError as error:
            self.queue.fail(part.job, error)
            return False
        return True

    def _read_results(self, part: Part, index: int) -> None:
        """Read the results of a part that ends at the batch index `index`."""
        job = part.job
        self.pool.mirror.checkpoint(part.sequence)
        if part.image is not None:
            job.forget_images()
        if not job.prompt_done:
            job.measure(self._context, len(part.tokens), index)
        if not part.completes_job:
            if not job.prompt_done:
                self._post(
                    job, Progress(len(part.sequence.tokens), job.prompt_length, job.cached_tokens)
                )
            return
        if job.pending_token is not None:  # its prompt was read again, after its memory was taken
            self._park(job)
            return
        try:
            if job.prompt_done:
                self._continue(part, index - len(part.draft_tokens))
            else:
                self._sample_first(job, index)
        except errors.BackendError as error:
            self.queue.fail(job, error)

    def _sample_first(self, job: Job, index: int) -> None:
        """Sample the first token and keep it until the job is started."""
        job.pending_token = self._sampler(job).sample(self._context, index)
        job.prompt_done = True
        if not job.started:
            self._became_ready = True
        self._post(job, Ready(job.cached_tokens))
        self._park(job)

    def _continue(self, part: Part, index: int) -> None:
        """Sample after the token at `index`, then after each drafted token that was right.

        Drafts do not change the model's choice; the rest of a draft is dropped.
        """
        job, drafted = part.job, part.draft_tokens
        undrafted_length = len(part.sequence.tokens) - len(drafted)
        if self._sampler(job).begin_choice(self._context, index):
            self.pool.mirror.trim(part.sequence, undrafted_length)
            return
        sampled = accepted = 0
        job.drafted_tokens += len(drafted)
        try:
            for expected in (*drafted, None):  # behind the draft, no token is expected
                token = self._sampler(job).sample(self._context, index + sampled)
                sampled += 1
                job.decoded_tokens += 1
                accepted += token == expected
                job.accepted_tokens += token == expected
                self._accept(job, token)  # counts what was accepted, if the answer ends
                ends_thought = job.thought is not None and job.thought.ending
                if token != expected or job.phase is Phase.DONE or ends_thought:
                    break
        finally:
            if drafted:
                self._planner.note_draft(part, accepted)
                # All sampled tokens but the last one were in the draft, and stay in memory. None
                # was sampled if the sampler has failed at once.
                self.pool.mirror.trim(part.sequence, undrafted_length + max(0, sampled - 1))
        self._jump_ahead(job)

    def _jump_ahead(self, job: Job) -> None:
        """Add the tokens that the grammar forces; the next batch decodes them together."""
        if job.phase is not Phase.GENERATING:
            return
        try:
            reason = self._answers.jump_ahead(job)
        except errors.BackendError as error:
            self.queue.fail(job, error)
            return
        self._answers.post_text(job)
        if reason is not None:
            self.queue.finish(job, reason)

    def _choose(self, job: Job, sampler: SamplerChain, choice: Choice) -> None:
        """Weigh the texts of a choice that has begun, and add one of them to the answer."""
        sequence = job.sequence
        if not choice.begun or sequence is None:
            return
        self._timer.settle()
        start = len(sequence.tokens)
        try:
            chosen = sampler.choose(choice) if self._weigh(choice, sequence) else []
            if not chosen:  # the next token is sampled, whose logits are overwritten
                sampler.choice = None
                self.pool.mirror.trim(sequence, start - 1)
                return
            if sequence.tokens[start:] != chosen[:-1]:
                self.pool.mirror.trim(sequence, start)
            for token in chosen:
                job.decoded_tokens += 1
                self._accept(job, token)
                if job.phase is Phase.DONE:
                    return
        except errors.BackendError as error:
            self.queue.fail(job, error)
            return
        self._jump_ahead(job)

    def _weigh(self, choice: Choice, sequence: CachedSequence) -> bool:
        """Decode the texts of a choice one after the other; False if there is no room for one.

        The sequence keeps the last one, which is often the one that is chosen.
        """
        mirror, start = self.pool.mirror, len(sequence.tokens)
        while (number := choice.next()) is not None:
            mirror.trim(sequence, start)
            tokens = choice.options[number][:-1]
            count = len(tokens)
            span = Span(sequence.id, sequence.position, tokens, wants_logits=True, outputs=count)
            if self._context.decode([span]) != DECODED:
                return False
            mirror.extend(sequence, tokens)
            size = self._vocab.size
            choice.note(number, [logits_row(self._context, i, size) for i in range(count)])
        return True

    def _park(self, job: Job) -> None:
        """Let a job whose prompt is in memory wait for its start, unless it has come already."""
        job.phase = Phase.PARKED
        if job.started:
            self._begin_generating(job)

    def _begin_generating(self, job: Job) -> None:
        """Add the token that was sampled before the start, and go on from it."""
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
            self.queue.finish(job, reason)

    def _sampler(self, job: Job) -> SamplerChain:
        """The job's sampler, which is made when its first token is sampled."""
        if job.sampler is None:
            job.sampler = SamplerChain(
                job.sampling, self._vocab, self._context.size, job.constraint
            )
            job.sampler.prime(job.tokens)
        return job.sampler

    def _handle_full_memory(self, parts: list[Part]) -> None:
        """Free shared memory: that of drafts first."""
        self._timer.settle()  # freeing memory takes time that is not the queued batches'
        if any(part.draft_tokens for part in parts):
            self._run([part.without_draft() for part in parts])
            return
        self.queue.make_room()
