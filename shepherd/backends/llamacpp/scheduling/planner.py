"""The plan of the next batch: which tokens of which requests."""

from collections.abc import Mapping
from collections.abc import Sequence as Jobs
from dataclasses import dataclass, replace
from time import monotonic

from shepherd.backends.llamacpp.cache.sequences import Sequence, SequencePool
from shepherd.backends.llamacpp.native.batch import ImageSpan
from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.sampling.candidates import MAX_MEASURED
from shepherd.backends.llamacpp.scheduling.job import Job, Phase
from shepherd.backends.llamacpp.scheduling.shares import PrefillPace, shares
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.backends.llamacpp.speculation.drafts import Draft
from shepherd.backends.llamacpp.vision.parts import image_span

CALM_SECONDS = 5.0
"""Seconds without a new request until a step may take long again."""


@dataclass(frozen=True, slots=True)
class Part:
    """A job's part of a batch: its next tokens, then drafted ones.

    `completes` says that all tokens of the job are in memory afterwards, and `reads` that results
    are read next: logits, or the state for a checkpoint. A part with an `image` has placeholders
    instead of tokens, and is a batch of its own.
    """

    job: Job
    sequence: Sequence
    tokens: list[int]
    completes: bool
    reads: bool
    draft: Draft | None = None
    image: ImageSpan | None = None

    @property
    def drafted(self) -> list[int]:
        """The drafted tokens at the end."""
        return self.draft.tokens if self.draft is not None else []

    @property
    def last(self) -> bool:
        """Whether this is only the last token of the job."""
        return self.completes and len(self.tokens) == 1

    def without_draft(self) -> "Part":
        """The same part without drafted tokens."""
        length = len(self.tokens) - len(self.drafted)
        return replace(self, tokens=self.tokens[:length], draft=None)


class Planner:
    """Plans each step over the sequences of a pool."""

    def __init__(
        self,
        context: NativeContext,
        pool: SequencePool,
        pace: PrefillPace,
        speculator: Speculator | None,
    ) -> None:
        """Drafts need a `speculator`, and memory that can forget rejected tokens."""
        self._context = context
        self._pool = pool
        self._pace = pace
        self._speculator = speculator if pool.rolls_back else None
        self._calm_from = 0.0

    @property
    def prompt_speed(self) -> float:
        """The measured speed of prompts in tokens per second; 0 before any measurement."""
        return self._pace.speed

    def plan(self, active: Jobs[Job], *, queued: bool = False) -> list[Part]:
        """One token of each generating job, then chunks of the prompts.

        `queued` says that others wait for a sequence.
        """
        room = self._context.batch_size
        running = [j for j in active if j.phase is Phase.GENERATING and j.pending == 1]
        others = [j for j in active if j.runnable and j not in running and not j.next_image]
        parts = [part for job in running[:room] if (part := self._part(job, 1))]
        room -= len(parts)
        if not others:
            return parts
        beside = bool(parts) or any(job.phase is Phase.PARKED for job in active)
        room = self._pace.limit(
            room,
            is_shared=beside,
            prompts=len(others),
            in_turn=self._pool.is_crowded_by_others and (queued or len(others) > 1),
            interruptible=self._is_calm,
        )
        room = min(room, sum(job.pending for job in others))
        full = self._pace.without_remainder(room + len(parts)) - len(parts)
        return parts + self._prompts(others, full if full > 0 else room)

    def image_parts(self, job: Job, active: Jobs[Job]) -> list[Part]:
        """The next tokens of the image that a job is at; raises ImageEncodingError.

        All tokens of an image that attend to each other are decoded at once.
        """
        image, sequence = job.next_image, job.sequence
        if image is None or sequence is None:
            return []
        beside = any(other is not job and other.runnable for other in active)
        room = max(
            self._pace.limit(self._context.batch_size, is_shared=beside), 2 * self._context.rows
        )
        done = len(sequence.tokens)
        end = min(image.end, done + room) if image.part.causal else image.end
        if 0 < image.end - end < self._context.rows:
            end -= self._context.rows
        completes = end == len(job.tokens)
        place = (sequence.id, sequence.position_at(image.start))
        span = image_span(image, done, end, place, wants_logits=completes)
        reads = completes or end in sequence.marks
        return [Part(job, sequence, job.tokens[done:end], completes, reads, image=span)]

    def decode(self, parts: Jobs[Part]) -> int:
        """Decode a batch; as `NativeContext.decode`."""
        image = parts[0].image
        if image is not None:
            return self._context.decode_image(image)
        alone = len(parts) == 1 and not parts[0].job.ready
        return self._context.decode(self.spans(parts), interruptible=alone and self._is_calm)

    def note_interrupted(self) -> None:
        """A request came while a step ran. Others may follow, so the next steps are short."""
        self._calm_from = monotonic() + CALM_SECONDS

    @property
    def _is_calm(self) -> bool:
        """Whether a step of a lone prompt may be long: it can be interrupted, and nobody came."""
        context = self._context
        can_abort = context.interrupt is not None and context.rows == 1 and self._pool.rolls_back
        return can_abort and monotonic() >= self._calm_from

    def next_parts(self, jobs: Jobs[Job], drafts: Mapping[Job, Draft] | None = None) -> list[Part]:
        """The last token of each job, which is not decoded yet, with the job's draft."""
        parts: list[Part] = []
        for job in jobs:
            draft = None if drafts is None else drafts.get(job)
            if job.sequence is not None:
                tokens = [job.tokens[-1], *(draft.tokens if draft else ())]
                parts.append(Part(job, job.sequence, tokens, True, True, draft))
        return parts

    def with_drafts(self, jobs: Jobs[Job]) -> list[Part]:
        """The next parts of jobs that generate, if one of them has a draft; else []."""
        room = self._context.batch_size - len(jobs)
        if self._speculator is None or room <= 0:
            return []
        drafts = self._speculator.drafts(jobs, room, self._context.size)
        return self.next_parts(jobs, drafts) if drafts else []

    def spans(self, parts: Jobs[Part]) -> list[Span]:
        """The parts as a batch."""
        return [
            self._pool.span(
                part.sequence,
                part.tokens,
                wants_logits=part.completes or part.job.measures,
                outputs=len(part.tokens) if part.job.measures else 1 + len(part.drafted),
            )
            for part in parts
        ]

    def note(self, parts: Jobs[Part], seconds: float) -> None:
        """Learn from the duration of a batch, and add it to its prompts."""
        for part in parts:
            if not part.job.ready:
                part.job.prefill_seconds += seconds
        tokens = sum(len(part.tokens) for part in parts)
        only_answers = all(p.job.ready and len(p.tokens) == 1 + len(p.drafted) for p in parts)
        if not only_answers or self._context.limits.answers_show_pace:
            self._pace.note(tokens, seconds)
        if not only_answers:
            self._pool.note_batch(tokens, seconds)
        if self._speculator is not None and only_answers:
            self._speculator.note_batch(tokens, seconds, self._pace.speed)

    def note_draft(self, part: Part, accepted: int) -> None:
        """Learn from a draft whose first `accepted` tokens were right."""
        if self._speculator is not None and part.draft is not None:
            self._speculator.note_draft(part.job, part.draft, accepted)

    def _prompts(self, jobs: Jobs[Job], room: int) -> list[Part]:
        """The parts of the jobs' prompts that share `room`, in the jobs' order."""
        whole = [part for job in jobs if room > 0 and (part := self._part(job, room))]
        remaining = [part.job.pending for part in whole]
        rooms = shares([len(part.tokens) for part in whole], remaining, room)
        fitting = zip(whole, rooms, strict=True)
        return [part for full, size in fitting if size and (part := self._part(full.job, size))]

    def _part(self, job: Job, room: int) -> Part | None:
        sequence = job.sequence
        if sequence is None:
            return None
        done = len(sequence.tokens)
        room = min(room, MAX_MEASURED) if job.measures else room
        room = min(room, job.tokens_before_image(done)) if job.images else room
        tokens = job.tokens[done : done + self._pool.chunk(sequence, room)]
        end = done + len(tokens)
        completes = end == len(job.tokens)
        reads = completes or job.measures or end in sequence.marks
        return Part(job, sequence, tokens, completes, reads)
