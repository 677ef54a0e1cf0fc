"""The answers to raw prompts in the shapes of OpenAI's completions API."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from shepherd.backends.base import Generation
from shepherd.events import FinishReason
from shepherd.json_text import frame
from shepherd.messages import JsonObject
from shepherd.sampling import TokenLogprob
from shepherd.server.exchange import Answer
from shepherd.server.generation import ChoicePiece
from shepherd.server.wire.answers import IMPOSSIBLE, new_id, timings


@dataclass
class OpenAiCompletion(Answer):
    """The answers to one or more prompts, as an object or as the chunks of a stream.

    Of `candidates` answers to each prompt the `count` most likely are kept. `echoes` are the
    prompts that the texts begin with; None for a prompt of tokens, whose text the backend knows.
    """

    model: str
    fingerprint: str
    count: int = 1
    candidates: int = 1
    echoes: Sequence[str | None] = ()
    logprobs: bool = False
    stream_usage: bool = False
    id: str = field(default_factory=partial(new_id, "cmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))
    _offsets: dict[int, int] = field(default_factory=dict[int, int])

    def whole(self, generations: Sequence[Generation]) -> JsonObject:
        """The whole answer: the choices of the first prompt, then those of the next."""
        kept = [
            (start, generation)
            for start in range(0, len(generations), self.candidates)
            for generation in self._best(generations[start : start + self.candidates])
        ]
        choices = [self._choice(index, *pair) for index, pair in enumerate(kept)]
        return self._frame(choices) | self._end(generations)

    def begin(self, choice: int) -> Iterator[str]:
        """The chunk of the prompt, if it was requested."""
        echo = self._echo(choice)
        self._offsets[choice] = len(echo)
        if echo:
            tokens = self._echoed_logprobs(choice, echo)
            yield frame(self._chunk(choice, echo, None, _logprobs(tokens, 0) if tokens else None))

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """The chunk of a text."""
        offset = self._offsets[piece.choice]
        tokens = _logprobs(piece.logprobs, offset) if self.logprobs else None
        self._offsets[piece.choice] = offset + len(piece.text)
        yield frame(self._chunk(piece.choice, piece.text, None, tokens))

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """The chunk with the reason of the end."""
        last = self._chunk(choice, "", _finish_reason(generation))
        measures = {} if self.stream_usage else {"timings": timings(generation.stats)}
        yield frame(last | measures)

    def close(self, generations: Sequence[Generation]) -> Iterator[str]:
        """The usage, if it was requested, and the end."""
        if self.stream_usage:
            yield frame(self._frame([]) | self._end(generations))
        yield frame("[DONE]")

    def _best(self, generations: Sequence[Generation]) -> Sequence[Generation]:
        if self.candidates == self.count:
            return generations
        return sorted(generations, key=_likelihood, reverse=True)[: self.count]

    def _choice(self, index: int, place: int, generation: Generation) -> JsonObject:
        echo = self._echo(place)
        logprobs: JsonObject | None = None
        if self.logprobs:
            logprobs = _logprobs(self._echoed_logprobs(place, echo), 0)
            for name, values in _logprobs(generation.logprobs or (), len(echo)).items():
                logprobs[name] += values
        return {
            "text": echo + generation.message.content,
            "index": index,
            "logprobs": logprobs,
            "finish_reason": _finish_reason(generation),
        }

    def _echo(self, index: int) -> str:
        """The text of a choice's prompt, "" unless it was requested."""
        if not self.echoes:
            return ""
        text = self.echoes[index // self.candidates]
        if text is None:
            return "" if self.choices is None else self.choices.handle(index).prompt_text
        return text

    def _echoed_logprobs(self, index: int, echo: str) -> Sequence[TokenLogprob]:
        """Those of the prompt's tokens; the token for the beginning is not part of a text."""
        if not (self.logprobs and echo) or self.choices is None:
            return ()
        first_of_prompt = index - index % self.candidates  # only that one has them
        tokens = self.choices.handle(first_of_prompt).prompt_logprobs
        if self.echoes[index // self.candidates] is None:
            return tokens
        # If the others make up the whole text, the first token is the one for the beginning.
        bytes_of_others = sum(len(token.piece) for token in tokens[1:])
        has_start = bytes_of_others >= len(echo.encode("utf-8", "replace"))
        return tokens[1:] if has_start else tokens

    def _chunk(
        self,
        index: int,
        text: str,
        finish: str | None = None,
        logprobs: JsonObject | None = None,
    ) -> JsonObject:
        choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}
        chunk = self._frame([choice])
        return chunk | {"usage": None} if self.stream_usage else chunk

    def _end(self, generations: Sequence[Generation]) -> JsonObject:
        measures = timings(generations[0].stats)
        return {"usage": self._usage(generations), "timings": measures}

    def _usage(self, generations: Sequence[Generation]) -> JsonObject:
        """Each prompt once, the answers of all candidates."""
        prompts = [generation.stats for generation in generations[:: self.candidates]]
        prompt = sum(stats.prompt_tokens for stats in prompts)
        completion = sum(generation.stats.completion_tokens for generation in generations)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(s.cached_tokens for s in prompts)},
        }

    def _frame(self, choices: Sequence[JsonObject]) -> JsonObject:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": list(choices),
        }


def _finish_reason(generation: Generation) -> str:
    """OpenAI's word for why the generation ended."""
    return "length" if generation.finish_reason is FinishReason.LENGTH else "stop"


def _logprobs(tokens: Iterable[TokenLogprob], offset: int) -> JsonObject:
    """The `logprobs` object; `offset` is where the first token stands in the text."""
    body: JsonObject = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token in tokens:
        likeliest = {chance.text: max(chance.logprob, IMPOSSIBLE) for chance in token.top}
        own = None if math.isnan(token.logprob) else max(token.logprob, IMPOSSIBLE)
        body["tokens"].append(token.text)
        body["token_logprobs"].append(own)
        body["top_logprobs"].append(None if own is None else likeliest | {token.text: own})
        body["text_offset"].append(offset)
        offset += len(token.text)
    return body


def _likelihood(generation: Generation) -> float:
    """The mean log probability of a token, by which candidates are compared."""
    tokens = generation.logprobs or ()
    return sum(token.logprob for token in tokens) / len(tokens) if tokens else -float("inf")
