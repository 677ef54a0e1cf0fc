"""A request as the owner thread works on it."""

import asyncio
import codecs
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from time import monotonic, perf_counter

from msgspec import Struct
from msgspec import field as attribute

from shepherd.backends.base import RequestState
from shepherd.backends.inprocess.answer import Update
from shepherd.backends.inprocess.constraint import CompiledConstraint
from shepherd.backends.llamacpp.cache.prefixes import NOBODY, Owner, Query, packed
from shepherd.backends.llamacpp.cache.returns import Return
from shepherd.backends.llamacpp.cache.sequences import CachedSequence
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.sampling import candidates, guard
from shepherd.backends.llamacpp.sampling.sampler import SamplerChain
from shepherd.backends.llamacpp.scheduling.drafts import Drafting, EarlierAnswers, EscapedPrompt
from shepherd.backends.llamacpp.vision.parts import ImageRun
from shepherd.backends.output.markers import StopMatcher
from shepherd.backends.tenant import Tenant, TenantKind
from shepherd.events import Stats
from shepherd.sampling import Sampling


class Phase(Enum):
    """The phase of a job. A parked job has its prompt in memory and waits for `start`."""

    WAITING = auto()
    PREFILL = auto()
    PARKED = auto()
    GENERATING = auto()
    DONE = auto()


AHEAD = {TenantKind.INTERACTIVE: 5.0, TenantKind.AGENT: 0.0, TenantKind.BATCH: -5.0}
"""Seconds of its account by which a tenant comes before others. It is a bound and no priority, so
that nobody starves: whoever has used more than that waits like all."""


class Account(Struct, eq=False):
    """A tenant's jobs that are not done, and the seconds of the engine that it has used.

    `used` are these over its share, and what it did not use in time does not count as saved. Drafts
    come from its `earlier` answers alone: those of others would tell what these got.
    """

    tenant: Tenant
    used: float = 0.0
    seconds: float = 0.0
    jobs: int = 0
    earlier: EarlierAnswers = attribute(default_factory=EarlierAnswers)

    def charge(self, seconds: float) -> None:
        """Count seconds of the engine."""
        self.seconds += seconds
        self.used += seconds / self.tenant.share

    @property
    def turn(self) -> float:
        """Low for those who come first."""
        return self.used - AHEAD[self.tenant.kind]


@dataclass(slots=True, eq=False)
class Job:
    """One request. Only the owner thread uses it, but any thread may set `cancelled`.

    `tokens` has the prompt and the answer; those that are not in the sequence yet must be
    decoded. `prompt_done` is true once all of the prompt was read and the first token sampled;
    `pending_token` is that token until the job is started. `decoded_tokens` counts those after it,
    and `accepted_tokens` those of the `drafted_tokens` that the model chose. `max_tokens` is 0
    without a limit. `end_token` ended the answer, or is -1. `has_text` is
    true once text was sent, and `holds_text` if further text may wait for the end. `pieces` are
    the bytes of tokens whose text was not sent yet. `receive` is called on the event loop's
    thread. The answer of a `repeatable` job should come out the same again. All jobs of one
    request have the same `request`. `missing_tokens` of the prompt were in no cache when the job
    was `submitted` (`time.monotonic`), got a sequence, or was `interrupted`. It was `admitted` when
    it got its first one. Since `blocked` there is no room for its saved state; 0 if there is. A
    `prompt_meter` needs the logits of all tokens of the prompt. `thought` limits the tokens of
    reasoning. `images` are where the tokens are placeholders. `session` names its session, and
    `returns`, once it is submitted, tells when that asks again. `account` is that of its tenant.
    `owner` is that of its tokens. While it waits, `place` is how many jobs come before it and
    itself.
    """

    prompt_length: int
    tokens: list[int]
    sampling: Sampling
    receive: Callable[[Update], None]
    constraint: CompiledConstraint | None = None
    cancelled: bool = False
    phase: Phase = Phase.WAITING
    sequence: CachedSequence | None = None
    sampler: SamplerChain | None = None
    drafting: Drafting | None = None
    escaped_prompt: EscapedPrompt | None = None
    pending_token: int | None = None
    max_tokens: int = 0
    submitted: float = 0.0
    admitted: float = 0.0
    missing_tokens: int = 0
    blocked: float = 0.0
    interrupted: bool = False
    cached_tokens: int = 0
    restored_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_started: float = 0.0
    decoded_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    end_token: int = -1
    prompt_done: bool = False
    started: bool = False
    has_text: bool = False
    holds_text: bool = False
    repeatable: bool = False
    request: object = None
    session: str = ""
    returns: Return | None = None
    account: Account = field(default_factory=lambda: Account(Tenant()))
    place: int = 0
    owner: Owner = NOBODY
    prompt_meter: candidates.PromptMeter | None = None
    thought: guard.ThoughtMeter | None = None
    images: list[ImageRun] = field(default_factory=list[ImageRun])
    stop: StopMatcher = field(init=False)
    pieces: list[bytes] = field(default_factory=list[bytes])
    _decoder: codecs.IncrementalDecoder = field(init=False)

    def __post_init__(self) -> None:
        # A job of its own is the only one of its request.
        self.request = self if self.request is None else self.request
        self.stop = StopMatcher(self.sampling.stop or ())
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def generated(self) -> int:
        """The number of tokens generated so far."""
        return len(self.tokens) - self.prompt_length

    @property
    def pending(self) -> int:
        """The number of tokens to decode before the next one can be sampled."""
        return len(self.tokens) - (len(self.sequence.tokens) if self.sequence else 0)

    @property
    def query(self) -> Query:
        """Its tokens so far as a prompt."""
        return Query(packed(self.tokens), self.owner)

    @property
    def joins_text(self) -> bool:
        """Whether the text of several tokens may be sent together."""
        return self.sampling.logprobs is None and not self.sampling.stop

    @property
    def measures(self) -> bool:
        """Whether the prompt is being measured."""
        return self.prompt_meter is not None and not self.prompt_done

    @property
    def runnable(self) -> bool:
        """Whether the next step can work on this job."""
        works = self.phase in (Phase.PREFILL, Phase.GENERATING)
        if not works or not self.images:
            return works
        image = self.next_image
        # Else its embeddings are not there yet.
        return image is None or image.ready

    @property
    def next_image(self) -> ImageRun | None:
        """The image whose tokens must be decoded next; None if a token comes next."""
        if not self.images or self.sequence is None:
            return None
        done = len(self.sequence.tokens)
        return next((image for image in self.images if image.start <= done < image.end), None)

    def tokens_before_image(self, start: int) -> int:
        """How many tokens from `start` on can be decoded before the next image; 0 inside of one."""
        places = (image.start for image in self.images if image.end > start)
        return max(0, next(places, len(self.tokens)) - start)

    def missing_images(self) -> list[ImageRun]:
        """The parts of images that are not in memory yet."""
        done = len(self.sequence.tokens) if self.sequence is not None else 0
        return [image for image in self.images if image.end > done]

    def needs_images(self) -> bool:
        """Whether the job still goes on."""
        return self.phase is not Phase.DONE and not self.cancelled

    def forget_images(self) -> None:
        """Free the embeddings of images that are in memory."""
        done = len(self.sequence.tokens) if self.sequence is not None else 0
        for image in self.images:
            if image.end <= done:
                image.encoding = None

    def decode_text(self, piece: bytes, *, last: bool = False) -> str:
        """The text that these bytes complete, without stop strings."""
        text = self.stop.feed(self._decoder.decode(piece, final=last))
        if last and self.stop.hit is None:
            text += self.stop.finish()  # what could have become a stop string
        return text

    def state(self, seconds_per_place: float) -> RequestState:
        """What is shown of the job."""
        tenant, now = self.account.tenant.name, monotonic()
        numbers = (self.prompt_length, self.cached_tokens, self.generated)
        expected = self.place * seconds_per_place
        return RequestState(tenant, *numbers, now - self.submitted, self.place, expected)

    def measure(self, context: NativeContext, count: int, index: int) -> None:
        """Measure the last `count` tokens, if requested; they end at the batch index `index`."""
        meter, sequence = self.prompt_meter, self.sequence
        if meter is None or sequence is None:
            return
        meter.begin(self.tokens[0])  # nothing predicts the first token
        end = len(sequence.tokens)
        # The logits of a token tell how likely the one after it was; none follows the last.
        following = self.tokens[end - count + 1 : min(end + 1, self.prompt_length)]
        meter.measure(context, index + 1 - count, following)

    def stats(self, context_size: int) -> Stats:
        """The measurements so far; the first token, which comes from the prefill, counts too."""
        elapsed = perf_counter() - self.decode_started if self.decoded_tokens else 0.0
        # As if the first token had taken as long as each other one.
        decode_seconds = elapsed * self.generated / max(1, self.decoded_tokens)
        return Stats(
            prompt_tokens=self.prompt_length,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.generated,
            prefill_seconds=self.prefill_seconds,
            decode_seconds=decode_seconds,
            context_used=len(self.tokens),
            context_size=context_size,
            restored_tokens=self.restored_tokens,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
        )


Post = Callable[[Job, Update], None]
"""Sends a job's update to the event loop."""


class Mailbox:
    """The updates of one job, for one reader. Event loop's thread only."""

    def __init__(self) -> None:
        self._updates: list[Update] = []
        self._arrived = asyncio.Event()

    def put(self, update: Update) -> None:
        """Add an update."""
        self._updates.append(update)
        self._arrived.set()

    async def take(self) -> list[Update]:
        """All updates so far, in order; waits for the first."""
        await self._arrived.wait()
        self._arrived.clear()
        updates, self._updates = self._updates, []
        return updates
