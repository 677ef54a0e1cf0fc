"""A generation in the shapes of the completions API."""

import math
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shepherd.backends.base import Generation
from shepherd.events import FinishReason
from shepherd.json_text import frame
from shepherd.logprobs import TokenLogprob
from shepherd.messages import JsonObject
from shepherd.server.generation import Choices, check_whole
from shepherd.server.responses import Frames
from shepherd.server.wire.answers import timings

_IMPOSSIBLE = -9999.0
"""OpenAI's word for what has no probability, since JSON has no infinity."""


def _new_id() -> str:
    return f"cmpl-{secrets.token_hex(12)}"


def _now() -> int:
    return int(time.time())


@dataclass(slots=True)
class CompletionAnswer:
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
    choices: Choices | None = None
    id: str = field(default_factory=_new_id)
    created: int = field(default_factory=_now)

    def attach(self, choices: Choices) -> None:
        """Take the choices that are answered, for the texts of their prompts."""
        self.choices = choices

    def whole(self, generations: Sequence[Generation]) -> JsonObject:
        """The whole answer: the choices of the first prompt, then those of the next."""
        kept = [
            (start, generation)
            for start in range(0, len(generations), self.candidates)
            for generation in self._best(generations[start : start + self.candidates])
        ]
        choices = [self._choice(index, *pair) for index, pair in enumerate(kept)]
        return self._frame(choices) | self._end(generations)

    async def frames(self, choices: Choices) -> Frames:
        """Yields the chunks of all choices, then the usage."""
        offsets: dict[int, int] = {}
        async for index, event, text, logprobs in choices:
            ended = await choices.result(index) if event is None else None
            if index not in offsets:
                echo = self._echo(index)
                offsets[index] = len(echo)
                if echo:
                    pieces = self._echoed_logprobs(index, echo)
                    prompt = old_logprobs(pieces, 0) if pieces else None
                    yield frame(self._chunk(index, echo, None, prompt))
            if ended is not None:
                check_whole(ended)
                last = self._chunk(index, "", finish_reason(ended))
                measured = not self.stream_usage
                yield frame(last | {"timings": timings(ended.stats)} if measured else last)
                continue
            pieces = old_logprobs(logprobs, offsets[index]) if self.logprobs else None
            yield frame(self._chunk(index, text, None, pieces))
            offsets[index] += len(text)
        if self.stream_usage:
            yield frame(self._frame([]) | self._end(await choices.results()))
        yield frame("[DONE]")

    def _best(self, generations: Sequence[Generation]) -> Sequence[Generation]:
        if self.candidates == self.count:
            return generations
        return sorted(generations, key=_likelihood, reverse=True)[: self.count]

    def _choice(self, index: int, place: int, generation: Generation) -> JsonObject:
        echo = self._echo(place)
        logprobs: JsonObject | None = None
        if self.logprobs:
            logprobs = old_logprobs(self._echoed_logprobs(place, echo), 0)
            for name, values in old_logprobs(generation.logprobs or (), len(echo)).items():
                logprobs[name] += values
        return {
            "text": echo + generation.message.content,
            "index": index,
            "logprobs": logprobs,
            "finish_reason": finish_reason(generation),
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
        first = index - index % self.candidates
        tokens = self.choices.handle(first).prompt_logprobs
        rest = sum(len(token.piece) for token in tokens[1:])
        is_text = self.echoes[index // self.candidates] is not None
        return tokens[1:] if is_text and rest >= len(echo.encode("utf-8", "replace")) else tokens

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


def finish_reason(generation: Generation) -> str:
    """OpenAI's word for why the generation ended."""
    return "length" if generation.finish_reason is FinishReason.LENGTH else "stop"


def old_logprobs(tokens: Iterable[TokenLogprob], offset: int) -> JsonObject:
    """The `logprobs` object; `offset` is where the first token stands in the text."""
    body: JsonObject = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token in tokens:
        likeliest = {chance.text: max(chance.logprob, _IMPOSSIBLE) for chance in token.top}
        own = None if math.isnan(token.logprob) else max(token.logprob, _IMPOSSIBLE)
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
