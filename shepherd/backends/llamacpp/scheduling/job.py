"""A request as the owner thread works on it, and what it tells the event loop."""

import codecs
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from time import perf_counter

from shepherd.backends.base import GenerationStats
from shepherd.backends.inprocess.grammar.constraint import CompiledConstraint
from shepherd.backends.inprocess.updates import Update
from shepherd.backends.llamacpp.cache.sequences import Sequence
from shepherd.backends.llamacpp.sampling.sampler import SamplerChain
from shepherd.backends.llamacpp.speculation.drafts import Drafting
from shepherd.backends.output.markers import StopMatcher
from shepherd.sampling import Sampling


class Phase(Enum):
    """How far a job is. A parked job has its prompt in memory and waits to be let go on."""

    WAITING = auto()
    PREFILL = auto()
    PARKED = auto()
    GENERATING = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class Job:
    """One request. Only the owner thread touches it, but for `cancelled`, which anyone may set.

    `tokens` is the prompt and what was generated; what of it is not in the sequence yet has to
    be decoded. `held` is a token that was sampled before generating was asked for. Of `drafted`
    tokens that were computed ahead, `accepted` came; it `spoke` once text of it was sent.
    `receive` is called on the event loop's thread. Jobs of one request have the same `request`.
    """

    prompt_length: int
    tokens: list[int]
    sampling: Sampling
    receive: Callable[[Update], None]
    constraint: CompiledConstraint | None = None
    cancelled: bool = False
    phase: Phase = Phase.WAITING
    sequence: Sequence | None = None
    sampler: SamplerChain | None = None
    drafting: Drafting | None = None
    held: int | None = None
    max_tokens: int = 0
    cached: int = 0
    restored: int = 0
    prefill_seconds: float = 0.0
    decode_started: float = 0.0
    decodes: int = 0
    drafted: int = 0
    accepted: int = 0
    ready: bool = False
    started: bool = False
    spoke: bool = False
    request: object = None
    stop: StopMatcher = field(init=False)
    _decoder: codecs.IncrementalDecoder = field(init=False)

    def __post_init__(self) -> None:
        self.request = self if self.request is None else self.request
        self.stop = StopMatcher(self.sampling.stop or ())
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.prompt_length

    @property
    def pending(self) -> int:
        """Tokens that are to be decoded before the next can be sampled."""
        return len(self.tokens) - (len(self.sequence.tokens) if self.sequence else 0)

    @property
    def runnable(self) -> bool:
        """Whether the next step can do something for it."""
        return self.phase in (Phase.PREFILL, Phase.GENERATING)

    def show(self, piece: bytes, *, last: bool = False) -> str:
        """The text that these bytes complete, stop strings taken out."""
        text = self.stop.feed(self._decoder.decode(piece, final=last))
        return text + self.stop.finish() if last and self.stop.hit is None else text

    def stats(self, context_size: int) -> GenerationStats:
        """The measures up to now; the first token, which the prefill gave, counts as the others."""
        elapsed = perf_counter() - self.decode_started if self.decodes else 0.0
        decode_seconds = elapsed * self.generated / max(1, self.decodes)
        return GenerationStats(
            prompt_tokens=self.prompt_length,
            cached_tokens=self.cached,
            completion_tokens=self.generated,
            prefill_seconds=self.prefill_seconds,
            decode_seconds=decode_seconds,
            context_used=len(self.tokens),
            context_size=context_size,
            restored_tokens=self.restored,
            drafted_tokens=self.drafted,
            accepted_tokens=self.accepted,
        )


Post = Callable[[Job, Update], None]
"""Sends a job's update on its way to the event loop."""
