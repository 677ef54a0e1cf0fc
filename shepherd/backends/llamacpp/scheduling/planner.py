"""The plan of the next batch: which tokens of which requests, and how long batches take."""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from msgspec import Struct, structs

from shepherd.backends.llamacpp.cache.sequences import CachedSequence, SequencePool
from shepherd.backends.llamacpp.native import batch, devices
from shepherd.backends.llamacpp.native.context import (
    DECODED,
    Interrupt,
    NativeContext,
    Span,
    Stopwatch,
)
from shepherd.backends.llamacpp.sampling.candidates import MAX_MEASURED
from shepherd.backends.llamacpp.scheduling.accounts import Accounts
from shepherd.backends.llamacpp.scheduling.drafts import Draft
from shepherd.backends.llamacpp.scheduling.job import Job, Phase
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.backends.llamacpp.vision.parts import image_span

EXCLUSIVE_STEP_SECONDS = 0.12
INTERRUPTIBLE_STEP_SECONDS = 1.5
"""At most so much work is lost when a request comes. Larger steps take less time in all: Gemma 3
270M reads 2,000 tokens behind 13,000 in 8.4 s in steps of 512, and in 12.3 s in steps of 64."""
QUEUED_STEP_SECONDS = 1.0
"""The time of a step if other prompts wait: small steps would delay them all."""
SHARED_STEP_SECONDS = 0.08
"""A new request waits for the running step, then for its own: 0.2 s together."""
SHARED_BATCH_DIVISOR = 4
"""Prompts get at most this fraction of a batch while other requests generate."""

CALM_SECONDS = 5.0
"""Seconds without a new request until a step may take long again."""
URGENT_PAUSE_SECONDS = 1.0
"""A step of several is lost for a person at most once in this time, so that work goes on."""

MAX_UNREAD_SECONDS = EXCLUSIVE_STEP_SECONDS
"""Work that may be queued before a wait: as long as the longest step of a prompt."""


class Part(Struct, frozen=True):
    """A job's part of a batch: its next tokens, then drafted ones.

    `completes_job` says that all tokens of the job are in memory afterwards, and `reads_results`
    that results are read next: logits, or the state for a checkpoint. A part with an `image` has
    placeholders instead of tokens, and is a batch of its own.
    """

    job: Job
    sequence: CachedSequence
    tokens: list[int]
    completes_job: bool
    reads_results: bool
    draft: Draft | None = None
    image: batch.ImageSpan | None = None

    @property
    def draft_tokens(self) -> list[int]:
        """The drafted tokens at the end."""
        return self.draft.tokens if self.draft is not None else []

    def without_draft(self) -> "Part":
        """The same part without drafted tokens."""
        length = len(self.tokens) - len(self.draft_tokens)
        return structs.replace(self, tokens=self.tokens[:length], draft=None)


class PrefillPace:
    """Measures how fast prompts are decoded, and chooses the size of their chunks."""

    def __init__(self, batch_size: int, limits: devices.DeviceLimits = devices.CPU_LIMITS) -> None:
        self._batch_size = batch_size
        self._limits = limits
        self.speed = 0.0
        """Tokens per second; 0 before any measurement."""
        self.last_tokens = 0
        """Those of the last measured step."""

    def note(self, tokens: int, seconds: float) -> None:
        """Learn from a step; small steps are ignored, which take longer for each token."""
        if tokens < self._limits.min_shared_chunk or seconds <= 0:
            return
        speed = tokens / seconds
        # Once it is slower, attention covers more tokens, and the next step is not faster.
        is_slower = speed < self.speed
        self.speed = speed if is_slower or not self.speed else (self.speed + speed) / 2
        self.last_tokens = tokens

    def limit(
        self,
        room: int,
        *,
        is_shared: bool,
        prompts: int = 1,
        in_turn: bool = False,
        interruptible: bool = False,
    ) -> int:
        """The maximum of prompt tokens in the next step, at most `room`.

        `is_shared` says that other requests generate, or will soon. `prompts` are in the step, and
        `in_turn` says that others wait for it to end. `interruptible`: a new request ends the step.
        """
        limits = self._limits
        seconds, minimum = EXCLUSIVE_STEP_SECONDS, limits.min_chunk
        if is_shared or (prompts > 1 and not in_turn):
            seconds, minimum = SHARED_STEP_SECONDS, limits.min_shared_chunk
        elif interruptible and prompts == 1:
            seconds = INTERRUPTIBLE_STEP_SECONDS
        elif in_turn:
            seconds = QUEUED_STEP_SECONDS
        most = self._batch_size // SHARED_BATCH_DIVISOR if is_shared else self._batch_size
        in_time = int(self.speed * seconds) if self.speed else limits.initial_chunk
        # At least the minimum, however slow the device is; small steps take longer for each token.
        return min(room, max(1, min(most, max(minimum, in_time))))

    def without_remainder(self, tokens: int) -> int:
        """At most so many tokens, as a step that attention computes without padding.

        With full steps of 128 and 64, 300 tokens become 256, and 100 become 64.
        """
        for size in self._limits.full_steps:
            if tokens > size:
                return tokens - tokens % size
        return tokens


class Planner:
    """Plans each step over the sequences of a pool."""

    def __init__(
        self,
        context: NativeContext,
        pool: SequencePool,
        pace: PrefillPace,
        speculator: Speculator | None,
        accounts: Accounts,
    ) -> None:
        """Drafts need a `speculator`, and memory that can forget rejected tokens."""
        self._context = context
        self._pool = pool
        self._pace = pace
        self._speculator = speculator if pool.can_draft else None
        self._accounts = accounts
        self._calm_from = 0.0
        """The time from which a step may take long again."""
        self._urgent_from = 0.0
        """The time from which a person's request may end a step of several again."""

    def plan(self, active: Sequence[Job], *, queued: bool = False) -> list[Part]:
        """One token of each generating job, then chunks of the prompts.

        `queued` says that others wait for a sequence.
        """
        active = self._accounts.entitled(active)
        room = self._context.batch_size
        writing = [j for j in active if j.phase is Phase.GENERATING and j.pending == 1]
        # An image is decoded in a batch of its own.
        reading = [j for j in active if j.runnable and j not in writing and not j.next_image]
        answers = [part for job in writing[:room] if (part := self._part(job, 1))]
        room -= len(answers)
        if not reading:
            return answers
        # A parked job may be started at any moment, and then waits for this step.
        has_answers = bool(answers) or any(job.phase is Phase.PARKED for job in active)
        room = self._pace.limit(
            room,
            is_shared=has_answers,
            prompts=len(reading),
            in_turn=self._pool.is_crowded_by_others and (queued or len(reading) > 1),
            interruptible=self._is_calm,
        )
        room = min(room, sum(job.pending for job in reading))
        # The tokens of answers count, too, when attention pads a step to a full size.
        full_room = self._pace.without_remainder(room + len(answers)) - len(answers)
        return answers + self._prompts(reading, full_room if full_room > 0 else room)

    def image_parts(self, job: Job, active: Sequence[Job]) -> list[Part]:
        """The next tokens of the image that a job is at; raises ImageEncodingError.

        All tokens of an image that attend to each other are decoded at once.
        """
        image, sequence = job.next_image, job.sequence
        if image is None or sequence is None:
            return []
        is_shared = any(other is not job and other.runnable for other in active)
        size, rows = self._context.batch_size, self._context.rows
        # A part of fewer than `rows` tokens would be padded, and an image can't be. With twice as
        # many, enough are left of this part if it leaves some to the next.
        room = max(self._pace.limit(size, is_shared=is_shared), 2 * rows)
        done = len(sequence.tokens)
        end = min(image.end, done + room) if image.part.causal else image.end
        if 0 < image.end - end < rows:
            end -= rows
        completes_job = end == len(job.tokens)
        place = (sequence.id, sequence.position_at(image.start))
        span = image_span(image, done, end, place, wants_logits=completes_job)
        reads_results = completes_job or end == self._pool.mirror.next_stop(sequence)
        tokens = job.tokens[done:end]
        return [Part(job, sequence, tokens, completes_job, reads_results, image=span)]

    def decode(self, parts: Sequence[Part]) -> int:
        """Decode a batch; as `NativeContext.decode`."""
        image = parts[0].image
        if image is not None:
            return self._context.decode_image(image)
        jobs = [part.job for part in parts]
        return self.decode_spans(jobs, self.spans(parts))

    def decode_spans(self, jobs: Sequence[Job], spans: Sequence[Span]) -> int:
        """Decode a span of each job; as `NativeContext.decode`."""
        code = self._context.decode(spans, self._interrupt(jobs))
        if self._speculator is not None and code == DECODED:
            self._speculator.note_decoded(jobs, spans)
        return code

    def note_interrupted(self) -> None:
        """A request came while a step ran. Others may follow, so the next steps are short."""
        now = monotonic()
        self._calm_from = now + CALM_SECONDS
        if self._context.urgent.is_set:
            self._urgent_from = now + URGENT_PAUSE_SECONDS

    def _interrupt(self, jobs: Sequence[Job]) -> Interrupt | None:
        """What may end a step of these jobs, whose work is lost then."""
        if not self._can_interrupt:
            return None
        if len(jobs) == 1 and not jobs[0].prompt_done and self._is_calm:
            return self._context.interrupt
        return self._context.urgent if monotonic() >= self._urgent_from else None

    @property
    def _can_interrupt(self) -> bool:
        """Whether a step can be interrupted: nothing of it stays in memory then."""
        context = self._context
        return context.can_interrupt and context.rows == 1 and self._pool.rolls_back

    @property
    def _is_calm(self) -> bool:
        """Whether a step of a lone prompt may be long: it can be interrupted, and nobody came."""
        return self._can_interrupt and monotonic() >= self._calm_from

    def next_parts(
        self, jobs: Sequence[Job], drafts: Mapping[Job, Draft] | None = None
    ) -> list[Part]:
        """The last token of each job, which is not decoded yet, with the job's draft."""
        parts: list[Part] = []
        for job in jobs:
            draft = None if drafts is None else drafts.get(job)
            if job.sequence is not None:
                tokens = [job.tokens[-1], *(draft.tokens if draft else ())]
                part = Part(
                    job, job.sequence, tokens, completes_job=True, reads_results=True, draft=draft
                )
                parts.append(part)
        return parts

    def with_drafts(self, jobs: Sequence[Job]) -> list[Part]:
        """The next parts of jobs that generate, if one of them has a draft; else []."""
        room = self._context.batch_size - len(jobs)  # behind the last token of each job
        if self._speculator is None or room <= 0:
            return []
        drafts = self._speculator.choose_drafts(jobs, room)
        return self.next_parts(jobs, drafts) if drafts else []

    def spans(self, parts: Sequence[Part]) -> list[Span]:
        """The parts as a batch."""
        return [
            Span(
                part.sequence.id,
                part.sequence.position,
                part.tokens,
                wants_logits=part.completes_job or part.job.measures,
                outputs=len(part.tokens) if part.job.measures else 1 + len(part.draft_tokens),
            )
            for part in parts
        ]

    def note(self, parts: Sequence[Part], seconds: float) -> None:
        """Learn from the duration of a batch, and add it to its prompts."""
        for part in parts:
            if not part.job.prompt_done:
                part.job.prefill_seconds += seconds
        tokens = sum(len(part.tokens) for part in parts)
        for part in parts:
            part.job.account.charge(seconds * len(part.tokens) / tokens)
        only_answers = all(
            p.job.prompt_done and len(p.tokens) == 1 + len(p.draft_tokens) for p in parts
        )
        # On a GPU a batch of answers takes as long as one of many tokens: no measure for prompts.
        if not only_answers or self._context.limits.answers_show_pace:
            self._pace.note(tokens, seconds)
        if not only_answers:
            self._pool.note_batch(tokens, seconds)
        if self._speculator is not None and only_answers:
            speed, read = self._pace.speed, self._pace.last_tokens
            prompt = read, read / speed if speed else 0.0  # 0 before any measurement
            self._speculator.note_batch(tokens, seconds, prompt)

    def note_draft(self, part: Part, accepted: int) -> None:
        """Learn from a draft whose first `accepted` tokens were right."""
        if self._speculator is not None and part.draft is not None:
            self._speculator.note_draft(part.job, part.draft, accepted)

    def _prompts(self, jobs: Sequence[Job], room: int) -> list[Part]:
        """The parts of the jobs' prompts that share `room`, in the jobs' order."""
        # First what each job could take alone, up to a checkpoint or an image, then its share.
        whole = [part for job in jobs if room > 0 and (part := self._part(job, room))]
        remaining = [part.job.pending for part in whole]
        rooms = shares([len(part.tokens) for part in whole], remaining, room)
        fitting = zip(whole, rooms, strict=True)
        return [part for full, size in fitting if size and (part := self._part(full.job, size))]

    def _part(self, job: Job, room: int) -> Part | None:
        """The next tokens of a job, at most `room`, up to a checkpoint or an image."""
        sequence = job.sequence
        if sequence is None:
            return None
        done = len(sequence.tokens)
        room = min(room, MAX_MEASURED) if job.measures else room
        room = min(room, job.tokens_before_image(done)) if job.images else room
        tokens = job.tokens[done : done + self._pool.chunk(sequence, room)]
        end = done + len(tokens)
        completes_job = end == len(job.tokens)
        is_stop = end == self._pool.mirror.next_stop(sequence)
        reads_results = completes_job or job.measures or is_stop
        return Part(job, sequence, tokens, completes_job, reads_results)


class BatchTimer:
    """Passes each batch with its seconds to `note`. Owner thread only.

    On a CPU a batch is computed when `llama_decode` returns. On a GPU it is only queued. There a
    batch whose logits are read next ends with that read, which waits anyway. Other batches share
    the time until the next wait, by their tokens. At most `MAX_UNREAD_SECONDS` of work are queued,
    so that a cancel or a new request waits no longer than for one step.
    """

    def __init__(
        self,
        stopwatch: Stopwatch,
        pace: PrefillPace,
        note: Callable[[Sequence[Part], float], None],
    ) -> None:
        """`pace` says how fast prompts are read."""
        self._stopwatch = stopwatch
        self._pace = pace
        self._note = note
        self._unread: list[Sequence[Part]] = []
        self._started = self._returned = 0.0

    def begin(self) -> None:
        """Call this before a batch is decoded."""
        if not self._unread:  # else it is queued behind others, with which it shares the time
            self._started = self._stopwatch.now()

    def returned(self) -> None:
        """Call this when `llama_decode` returns."""
        self._returned = self._stopwatch.now()

    def add(self, parts: Sequence[Part]) -> None:
        """Add a decoded batch."""
        if not self._stopwatch.returns_early:
            self._note(parts, self._returned - self._started)
            return
        self._unread.append(parts)
        if self._must_wait(parts):
            self.settle()

    def settle(self) -> None:
        """Wait for all queued batches and note them; they share the time by their tokens."""
        if not self._unread:
            return
        time = self._stopwatch.finished()
        batches, self._unread = self._unread, []
        started, self._started = self._started, time
        token_seconds = (time - started) / max(1, sum(map(_tokens, batches)))
        for parts in batches:
            self._note(parts, token_seconds * _tokens(parts))

    def _must_wait(self, parts: Sequence[Part]) -> bool:
        """Whether results are read next, or no further batch of this size may be queued."""
        speed = self._pace.speed
        if not speed or any(part.reads_results for part in parts):  # 0 is an unknown speed
            return True
        return (sum(map(_tokens, self._unread)) + _tokens(parts)) / speed > MAX_UNREAD_SECONDS


def _tokens(parts: Sequence[Part]) -> int:
    """The tokens of a batch."""
    return sum(len(part.tokens) for part in parts)


def shares(usable: Sequence[int], remaining: Sequence[int], room: int) -> list[int]:
    """The number of tokens of each prompt to read next, oldest prompt first.

    A prompt has `remaining` tokens to read, and `usable` of them fit the next step. One half of
    `room` is shared equally, so no prompt starves. The rest goes to the prompts that end soonest: a
    short prompt does not wait for a long one.
    """
    equal = (room + 1) // 2
    each = max(1, equal // max(1, len(usable)))
    assigned: list[int] = []
    for tokens in usable:
        assigned.append(min(tokens, each, equal))
        equal -= assigned[-1]
    spare = room - sum(assigned)
    for place in sorted(range(len(usable)), key=remaining.__getitem__):
        more = min(usable[place] - assigned[place], spare)
        assigned[place] += more
        spare -= more
    return assigned
