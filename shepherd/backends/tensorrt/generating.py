"""Turns an engine's tokens into an answer's updates."""

import codecs
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter

from shepherd.backends.base import GenerationStats
from shepherd.backends.inprocess.answer import Answer, Finished, Text, Update
from shepherd.backends.inprocess.prompt.prompt import Prompt
from shepherd.backends.inprocess.prompt.special import Vocabulary
from shepherd.backends.output import StopMatcher
from shepherd.backends.tensorrt.protocol import Step, TokenRequest, TokenStream
from shepherd.errors import BackendError
from shepherd.events import FinishReason
from shepherd.logprobs import TokenLogprob, TokenProbability
from shepherd.messages import ToolSpec
from shepherd.sampling import Sampling

_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "timeout": FinishReason.LENGTH,
    "cancelled": FinishReason.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and how to answer it; `generation` is the request to the engine, without a limit."""

    prompt: Prompt
    sampling: Sampling
    tools: list[ToolSpec]
    generation: TokenRequest


class Generating:
    """One answer in progress."""

    def __init__(self, request: Request, vocab: Vocabulary, context_size: int) -> None:
        sampling = request.sampling
        self.tokens: list[int] = []
        self.cached = 0
        self._prompt = len(request.prompt.tokens)
        self._context_size = context_size
        self._vocab = vocab
        self._ends = frozenset[int](() if sampling.ignore_eos else vocab.ends)
        self._top = sampling.logprobs
        self._stop = StopMatcher(sampling.stop or ())
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._reason: FinishReason | None = None
        self._began = perf_counter()
        self._first = 0.0

    async def run(self, stream: TokenStream, answer: Answer) -> None:
        """Pass the engine's output to the answer until it ends; raises BackendError."""
        async with aclosing(stream.steps()) as steps:
            async for step in steps:
                answer.take(self._updates(step))
                if answer.cancelled or self._reason is not None:
                    break
        if not answer.cancelled and self._reason is None:
            raise BackendError("TensorRT-LLM ended the answer without saying why.")

    @property
    def stats(self) -> GenerationStats:
        """The measurements so far; the time before the first token counts as reading the prompt."""
        now = perf_counter()
        first = self._first or now
        return GenerationStats(
            prompt_tokens=self._prompt,
            cached_tokens=min(self.cached, self._prompt),
            completion_tokens=len(self.tokens),
            prefill_seconds=first - self._began,
            decode_seconds=now - first,
            context_used=self._prompt + len(self.tokens),
            context_size=self._context_size,
        )

    def _updates(self, step: Step) -> list[Update]:
        if step.tokens and not self._first:
            self._first = perf_counter()
        self.cached = max(self.cached, step.cached)
        updates: list[Update] = []
        for place, token in enumerate(step.tokens):
            if token in self._ends:
                self._reason = FinishReason.STOP
                break
            self.tokens.append(token)
            updates += self._text_updates(token, step.logprobs, place)
            if self._stop.hit is not None:
                self._reason = FinishReason.STOP
                break
        if self._reason is None and step.finish:
            self._reason = _REASONS.get(step.finish, FinishReason.STOP)
        return updates if self._reason is None else [*updates, *self._last(self._reason)]

    def _text_updates(
        self, token: int, chances: tuple[Mapping[int, float], ...] | None, place: int
    ) -> list[Update]:
        """The text that this token completes, and its log probability if requested."""
        piece = self._vocab.piece(token)
        text = self._stop.feed(self._decoder.decode(piece))
        if self._top is None:
            return [Text(text)] if text else []
        known: Mapping[int, float] = {}
        if chances is not None and place < len(chances):
            known = chances[place]
        best = sorted(known.items(), key=lambda item: item[1], reverse=True)[: self._top]
        top = tuple(TokenProbability(self._vocab.piece(number), chance) for number, chance in best)
        return [Text(text, TokenLogprob(piece, known.get(token, 0.0), top))]

    def _last(self, reason: FinishReason) -> list[Update]:
        rest = ""
        if self._stop.hit is None:
            rest = self._stop.feed(self._decoder.decode(b"", final=True)) + self._stop.finish()
        finished = Finished(reason, self.stats, tuple(self.tokens), self._stop.hit or "")
        return [Text(rest), finished] if rest else [finished]
