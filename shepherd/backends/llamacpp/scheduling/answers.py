"""The tokens of answers: their text as updates, and whether an answer ends with one."""

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from shepherd import errors, events
from shepherd.backends.inprocess.answer import Text
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import DECODED, NativeContext, Span
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.guard import MAX_TAIL
from shepherd.backends.llamacpp.sampling.sampler import NO_TOKEN, SamplerChain
from shepherd.backends.llamacpp.scheduling.job import Job, Post
from shepherd.backends.llamacpp.scheduling.planner import BatchTimer, Part, Planner

MAX_RUN_SECONDS = 0.004
"""Seconds after which the text of a run is delivered: waking the event loop costs as much as a
token of a small model, and this delay is not visible."""

MAX_HELD_SECONDS = 0.05
"""The same for answers whose text is sent as a whole: nobody reads the text of a run."""


class Answers(Struct, eq=False):
    """Adds sampled tokens to the answers of jobs. Owner thread only.

    The text of several tokens is decoded and posted together, by `post_text`. A job with stop
    strings or log probabilities gets an update for each token.

    `jumps_ahead`: text that a grammar forces is decoded at once instead of sampled.
    `weighs`: where it leaves few texts, the model chooses between whole texts.
    """

    _vocab: Vocab
    context_size: int
    _post: Post
    jumps_ahead: bool = True
    weighs: bool = True

    def accept(self, job: Job, token: int) -> events.FinishReason | None:
        """Add a sampled token; returns why the answer ends with it, or None if it goes on."""
        if token == NO_TOKEN or self._vocab.is_eog(token):
            job.end_token = token
            return events.FinishReason.STOP
        piece = self._vocab.piece(token)
        job.tokens.append(token)
        job.pieces.append(piece)
        if job.thought is not None:
            job.thought.feed(piece)
        if not job.joins_text:  # a stop string ends the answer at once
            self.post_text(job)
            if job.stop.hit is not None:
                return events.FinishReason.STOP
        is_full = job.generated == job.max_tokens or len(job.tokens) >= self.context_size
        return events.FinishReason.LENGTH if is_full else None

    def jump_ahead(self, job: Job) -> events.FinishReason | None:
        """Add the tokens that need no choice; the next batch decodes them together.

        Returns as `accept` does. Raises BackendError if the grammar is too slow.
        """
        if job.sampler is None:  # its first token is not sampled yet
            return None
        for token in self._forced(job, job.sampler):
            job.decoded_tokens += 1
            reason = self.accept(job, token)
            if reason is not None:
                return reason
        # The grammar has no more text, so that the model could only choose to end the answer.
        return events.FinishReason.STOP if self.jumps_ahead and job.sampler.ended else None

    def _forced(self, job: Job, sampler: SamplerChain) -> list[int]:
        """The tokens that end reasoning at its limit, or those that the grammar forces."""
        if job.thought is not None and job.thought.ending:
            ending = self._vocab.tokenize(job.thought.ending, parse_special=True)
            job.thought.end()
            return sampler.write(ending)
        if not self.jumps_ahead:
            return []
        tail_start = max(job.prompt_length, len(job.tokens) - MAX_TAIL)
        return sampler.force(job.tokens[tail_start:], weighs=self.weighs)

    def post_text(self, job: Job) -> None:
        """Post the text of the tokens since the last call, unless it may wait."""
        if not job.pieces or (job.holds_text and job.has_text):
            return
        text = job.decode_text(b"".join(job.pieces))
        job.pieces.clear()
        logprob = None if job.sampler is None else job.sampler.logprob
        if text or logprob is not None:  # a token may be a part of a character only
            self._post(job, Text(text, logprob))
            job.has_text = True

    def end(self, job: Job) -> None:
        """Post all text that is left of an answer that ends, and keep its tokens for drafts."""
        text = job.decode_text(b"".join(job.pieces), last=True)
        job.pieces.clear()
        if text:
            self._post(job, Text(text))
        job.account.earlier.add(job.tokens, job.prompt_length, job.end_token)


Ending = tuple[Job, events.FinishReason | errors.BackendError]
"""A job that ends, with the reason or with an error."""


class DecodeLoop(Struct, eq=False):
    """Decodes one token of each answer again and again, until something else is to do.

    The mirrors of the sequences and the text of the answers follow after the last batch.
    """

    _context: NativeContext
    _pool: SequencePool
    _planner: Planner
    _timer: BatchTimer
    _answers: Answers
    endings: list[Ending] = field(default_factory=list[Ending])
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
        stopwatch = self._context.stopwatch
        # A new request or a cancelled one ends the run before.
        is_held = all(job.holds_text and job.has_text for job in jobs)
        deadline = stopwatch.now() + (MAX_HELD_SECONDS if is_held else MAX_RUN_SECONDS)
        decoded = 0
        try:
            while True:
                drafted = self._planner.with_drafts(jobs)
                if drafted:
                    return drafted
                # The mirrors of the sequences do not have the tokens of this run yet.
                places = (position + decoded for position in positions)
                spans = [
                    Span(part.sequence.id, place, (part.job.tokens[-1],), wants_logits=True)
                    for part, place in zip(parts, places, strict=True)
                ]
                self._timer.begin()
                if self._planner.decode_spans(jobs, spans) != DECODED:
                    return self._planner.next_parts(jobs)
                self._timer.returned()
                decoded += 1
                self._timer.add(parts)
                self._sample(jobs)
                # Those that were decoded, and the one that was sampled last. A grammar has forced
                # any further ones, which need a larger batch, or leaves a choice between few texts.
                usual = decoded + 1
                has_jumped = any(
                    len(job.tokens) != start + usual
                    for job, start in zip(jobs, starts, strict=True)
                )
                if self.endings or has_jumped or not quiet() or stopwatch.now() > deadline:
                    return []
        finally:
            self._settle(parts, starts, decoded)

    def _sample(self, jobs: Sequence[Job]) -> None:
        """Sample the next token of each job."""
        for index, job in enumerate(jobs):  # each has one token in the batch
            assert job.sampler is not None  # it was made for the job's first token
            try:
                if job.sampler.begin_choice(self._context, index):
                    continue
                token = job.sampler.sample(self._context, index)
                job.decoded_tokens += 1
                reason = self._answers.accept(job, token) or self._answers.jump_ahead(job)
            except errors.BackendError as error:
                reason = error
            if reason is not None:
                self.endings.append((job, reason))

    def _settle(self, parts: Sequence[Part], starts: Sequence[int], decoded: int) -> None:
        """Note the decoded tokens in the mirrors, and post the text of the answers."""
        for part, start in zip(parts, starts, strict=True):
            self._answers.post_text(part.job)
            try:
                self._pool.mirror.extend(part.sequence, part.job.tokens[start : start + decoded])
            except errors.BackendError as error:
                self.endings.append((part.job, error))
