"""A generation in the shapes of the Gemini API."""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from shepherd.backends.base import Generation
from shepherd.events import CallbackEvent, FinishReason
from shepherd.json_text import frame, to_json
from shepherd.logprobs import TokenLogprob, TokenProbability
from shepherd.messages import JsonObject, Message
from shepherd.server.generation import ChoicePiece, Choices, check_whole
from shepherd.server.responses import Frames
from shepherd.server.seal import Seal, SealError
from shepherd.server.wire.answers import reasoning_tokens

_IMPOSSIBLE = -9999.0
"""Stands for the log probability of the impossible, since JSON has no infinity."""


def _new_id() -> str:
    return secrets.token_urlsafe(16)


@dataclass(frozen=True, slots=True)
class GeminiAnswer:
    """One answer, as an object, as server-sent events or as an array that grows.

    `thoughts`: whether the answer includes the reasoning; `array`: whether a stream is an array.
    """

    model: str
    seal: Seal
    thoughts: bool = False
    array: bool = False
    id: str = field(default_factory=_new_id)

    def whole(self, generations: Sequence[Generation]) -> JsonObject:
        """The whole answer, one candidate for each generation."""
        candidates = [self._candidate(index, g) for index, g in enumerate(generations)]
        return self._response(candidates) | {"usageMetadata": usage(*generations)}

    async def frames(self, choices: Choices) -> Frames:
        """Yields the texts of each candidate as they come, then its end; usage comes last."""
        ended: dict[int, Generation] = {}
        first = True
        async for piece in choices:
            if piece.event is not None:
                chunk = self._text_chunk(piece)
            else:
                generation = await choices.result(piece.choice)
                check_whole(generation)
                ended[piece.choice] = generation
                chunk = self._last_chunk(piece.choice, generation)
                if len(ended) == choices.count:
                    chunk["usageMetadata"] = usage(*(ended[i] for i in sorted(ended)))
            if chunk is not None:
                yield self._frame(chunk, first=first)
                first = False
        if self.array:
            yield "]"

    def _frame(self, chunk: JsonObject, *, first: bool) -> str:
        if not self.array:
            return frame(chunk)
        return ("[" if first else ",\r\n") + to_json(chunk)

    def _text_chunk(self, piece: ChoicePiece) -> JsonObject | None:
        """The chunk of a text, None if the answer leaves it out."""
        thought = piece.event is CallbackEvent.THINKING
        if thought and not self.thoughts:
            return None
        part: JsonObject = {"text": piece.text} | ({"thought": True} if thought else {})
        candidate = self._content([part], piece.choice)
        if piece.logprobs:
            candidate["logprobsResult"] = _logprobs(piece.logprobs)
        return self._response([candidate])

    def _last_chunk(self, index: int, generation: Generation) -> JsonObject:
        parts = [*self._calls(generation.message)]
        candidate = self._content(parts or [self._end(generation.message)], index)
        return self._response([candidate | self._finish(generation)])

    def _candidate(self, index: int, generation: Generation) -> JsonObject:
        message = generation.message
        parts: list[JsonObject] = []
        if self.thoughts and message.reasoning:
            parts.append({"text": message.reasoning, "thought": True})
        calls = [*self._calls(message)]
        if message.content or not calls:
            signed = {} if calls else self._end(message)
            parts.append(signed | {"text": message.content})
        candidate = self._content([*parts, *calls], index) | self._finish(generation)
        if generation.logprobs is not None:
            candidate["logprobsResult"] = _logprobs(generation.logprobs)
        return candidate

    def _calls(self, message: Message) -> Iterator[JsonObject]:
        """The calls; the first one carries the signature."""
        word = signature(self.seal, message) if message.tool_calls else ""
        for call in message.tool_calls:
            part: JsonObject = {
                "functionCall": {"id": call.id, "name": call.name, "args": call.arguments}
            }
            if word:
                part["thoughtSignature"] = word
                word = ""
            yield part

    def _end(self, message: Message) -> JsonObject:
        """The part that ends an answer without calls: no text, and the signature."""
        word = signature(self.seal, message)
        return {"text": ""} | ({"thoughtSignature": word} if word else {})

    def _content(self, parts: list[JsonObject], index: int) -> JsonObject:
        return {"content": {"parts": parts, "role": "model"}, "index": index}

    def _finish(self, generation: Generation) -> JsonObject:
        length = generation.finish_reason is FinishReason.LENGTH
        ended: JsonObject = {"finishReason": "MAX_TOKENS" if length else "STOP"}
        if generation.logprobs:
            tokens = [max(token.logprob, _IMPOSSIBLE) for token in generation.logprobs]
            ended["avgLogprobs"] = sum(tokens) / len(tokens)
        return ended

    def _response(self, candidates: list[JsonObject]) -> JsonObject:
        return {"candidates": candidates, "modelVersion": self.model, "responseId": self.id}


def usage(*generations: Generation) -> JsonObject:
    """The usage: the prompt once, the answers of all candidates; thoughts are counted apart."""
    prompt = generations[0].stats
    thoughts = sum(map(reasoning_tokens, generations))
    generated = sum(generation.stats.completion_tokens for generation in generations)
    result = {
        "promptTokenCount": prompt.prompt_tokens,
        "candidatesTokenCount": generated - thoughts,
        "totalTokenCount": prompt.prompt_tokens + generated,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt.prompt_tokens}],
    }
    if prompt.cached_tokens:
        result["cachedContentTokenCount"] = prompt.cached_tokens
    if thoughts:
        result["thoughtsTokenCount"] = thoughts
    return result


def _logprobs(tokens: Sequence[TokenLogprob]) -> JsonObject:
    return {
        "chosenCandidates": [_token(token) for token in tokens],
        "topCandidates": [{"candidates": [_token(t) for t in token.top]} for token in tokens],
    }


def _token(token: TokenProbability) -> JsonObject:
    number = {} if token.id < 0 else {"tokenId": token.id}
    return {"token": token.text, "logProbability": max(token.logprob, _IMPOSSIBLE), **number}


_PURPOSE = "gemini.thought"


@dataclass(frozen=True, slots=True)
class Thought:
    """The parts of a message that clients don't see; `calls` are those of its calls, in order."""

    reasoning: str = ""
    extra: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    calls: tuple[Mapping[str, JsonObject], ...] = ()

    @classmethod
    def of(cls, message: Message) -> "Thought":
        """The parts of a message."""
        calls = tuple(call.extra for call in message.tool_calls)
        return cls(message.reasoning, message.extra, calls)

    def restored(self, message: Message) -> Message:
        """The message with these parts."""
        calls = list(message.tool_calls)
        for index, extra in enumerate(self.calls[: len(calls)]):
            calls[index] = replace(calls[index], extra=extra)
        return replace(message, reasoning=self.reasoning, extra=self.extra, tool_calls=tuple(calls))


def signature(seal: Seal, message: Message) -> str:
    """The word for a message, "" if it has nothing that must come back."""
    thought = Thought.of(message)
    if not (thought.reasoning or thought.extra or any(thought.calls)):
        return ""
    data = {
        "reasoning": thought.reasoning,
        "extra": dict(thought.extra),
        "calls": [dict(extra) for extra in thought.calls],
    }
    return seal.wrap(_PURPOSE, to_json(data))


def thought_of(seal: Seal, word: str) -> Thought | None:
    """What a word of `signature` holds, None for any other word."""
    try:
        data = cast(JsonObject, json.loads(seal.unwrap(_PURPOSE, word)))
    except SealError:
        return None
    return Thought(data["reasoning"], data["extra"], tuple(data["calls"]))
