"""A generation in the shapes of the Gemini API."""

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from msgspec.structs import replace

from shepherd import events, json_text, messages, sampling
from shepherd.backends.base import Generation
from shepherd.server import errors, serving
from shepherd.server.generation import ChoicePiece
from shepherd.server.seal import Seal, SealError
from shepherd.server.wire.answers import IMPOSSIBLE, reasoning_tokens, texts_of
from shepherd.server.wire.errors import JsonErrors


@dataclass
class GeminiAnswer(serving.Answer):
    """One answer, as an object, as server-sent events or as an array that grows.

    `thoughts`: whether the answer includes the reasoning; `array`: whether a stream is an array,
    which `_is_array_begun`. `_ended` are the generations by their choices.
    """

    model: str
    seal: Seal
    thoughts: bool = False
    array: bool = False
    id: str = field(default_factory=partial(secrets.token_urlsafe, 16))
    _ended: dict[int, Generation] = field(default_factory=dict[int, Generation])
    _is_array_begun: bool = False

    def whole(self, generations: Sequence[Generation]) -> messages.JsonObject:
        """The whole answer, one candidate for each generation."""
        candidates = [self._candidate(index, g) for index, g in enumerate(generations)]
        return self._response(candidates) | {"usageMetadata": _usage(generations)}

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """The chunk of a text, none if the answer leaves it out."""
        parts = self._text_parts(piece)
        if parts:
            candidate = self._content(parts, piece.choice)
            if piece.logprobs:
                candidate["logprobsResult"] = _logprobs(piece.logprobs)
            yield self._frame(self._response([candidate]))

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """The calls and the end of a candidate; that of the last one has the usage."""
        self._ended[choice] = generation
        parts = self._last_parts(generation.message)
        chunk = self._response([self._content(parts, choice) | self._finish(generation)])
        if len(self._ended) == self.choices.count:
            # the first choice comes first: it has the measures of the prompt
            generations = [self._ended[index] for index in sorted(self._ended)]
            chunk["usageMetadata"] = _usage(generations)
        yield self._frame(chunk)

    def close(self, _generations: Sequence[Generation]) -> Iterator[str]:
        """The end of an array."""
        if self.array:
            yield "]"

    def _frame(self, chunk: messages.JsonObject) -> str:
        """A chunk as an event, or as the next element of the array."""
        if not self.array:
            return json_text.frame(chunk)
        separator = ",\r\n" if self._is_array_begun else "["
        self._is_array_begun = True
        return separator + json_text.to_json(chunk)

    def _candidate(self, index: int, generation: Generation) -> messages.JsonObject:
        """One whole answer."""
        message = generation.message
        parts = [part for piece in texts_of(generation) for part in self._text_parts(piece)]
        last_parts = self._last_parts(message)
        if message.content and not message.tool_calls:
            last_parts[0] |= parts.pop()  # a whole answer ends with its text, not with an empty one
        candidate = self._content([*parts, *last_parts], index) | self._finish(generation)
        if generation.logprobs is not None:
            candidate["logprobsResult"] = _logprobs(generation.logprobs)
        return candidate

    def _text_parts(self, piece: ChoicePiece) -> list[messages.JsonObject]:
        """The part that has a text, none if the answer leaves it out."""
        if not piece.is_reasoning:
            return [{"text": piece.text}]
        return [{"text": piece.text, "thought": True}] if self.thoughts else []

    def _last_parts(self, message: messages.Message) -> list[messages.JsonObject]:
        """The calls, or an empty text where there are none; the first one has the signature."""
        parts: list[messages.JsonObject] = [
            {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
            for call in message.tool_calls
        ]
        if not parts:
            parts.append({"text": ""})
        word = signature(self.seal, message)
        if word:
            parts[0]["thoughtSignature"] = word
        return parts

    def _content(self, parts: list[messages.JsonObject], index: int) -> messages.JsonObject:
        """A candidate with these parts, and without its end."""
        return {"content": {"parts": parts, "role": "model"}, "index": index}

    def _finish(self, generation: Generation) -> messages.JsonObject:
        """The fields of a candidate that tell of its end."""
        is_cut = generation.finish_reason is events.FinishReason.LENGTH
        fields: messages.JsonObject = {"finishReason": "MAX_TOKENS" if is_cut else "STOP"}
        if generation.logprobs:
            logprobs = [max(token.logprob, IMPOSSIBLE) for token in generation.logprobs]
            fields["avgLogprobs"] = sum(logprobs) / len(logprobs)
        return fields

    def _response(self, candidates: list[messages.JsonObject]) -> messages.JsonObject:
        """The fields that the whole answer and each of its chunks have."""
        return {"candidates": candidates, "modelVersion": self.model, "responseId": self.id}


def _usage(generations: Sequence[Generation]) -> messages.JsonObject:
    """The usage: the prompt once, the answers of all candidates; thoughts are counted apart."""
    prompt = generations[0].stats
    thoughts = sum(reasoning_tokens(generation) for generation in generations)
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


def _logprobs(tokens: Sequence[sampling.TokenLogprob]) -> messages.JsonObject:
    """The chosen tokens, and at each place the likeliest ones."""
    likeliest = [{"candidates": [_token(likely) for likely in token.top]} for token in tokens]
    return {"chosenCandidates": [_token(token) for token in tokens], "topCandidates": likeliest}


def _token(token: sampling.TokenProbability) -> messages.JsonObject:
    """A token with its log probability; a provider's has no number, which is then negative."""
    number = {} if token.id < 0 else {"tokenId": token.id}
    return {"token": token.text, "logProbability": max(token.logprob, IMPOSSIBLE), **number}


_PURPOSE = "gemini.thought"


def signature(seal: Seal, message: messages.Message) -> str:
    """What has to come back with a message as a word that clients keep, "" if it is nothing.

    It holds the reasoning, which many clients leave out, and what the API behind a model wants
    back.
    """
    call_extras = [dict(call.extra) for call in message.tool_calls]
    if not (message.reasoning or message.extra or any(call_extras)):
        return ""
    data = {"reasoning": message.reasoning, "extra": dict(message.extra), "calls": call_extras}
    return seal.wrap(_PURPOSE, json_text.to_json(data))


def restored(seal: Seal, message: messages.Message, words: Iterable[str]) -> messages.Message:
    """The message with what the first word of `signature` holds.

    Words of other servers, and Google's placeholders, are ignored.
    """
    for word in words:
        try:
            data: messages.JsonObject = json.loads(seal.unwrap(_PURPOSE, word))
        except SealError:
            continue
        calls = [*message.tool_calls]
        for index, extra in enumerate(data["calls"][: len(calls)]):  # clients may drop calls
            calls[index] = replace(calls[index], extra=extra)
        return replace(
            message, reasoning=data["reasoning"], extra=data["extra"], tool_calls=tuple(calls)
        )
    return message


_STATUSES: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "INVALID_ARGUMENT",
    HTTPStatus.UNAUTHORIZED: "UNAUTHENTICATED",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.NOT_FOUND: "NOT_FOUND",
    HTTPStatus.REQUEST_TIMEOUT: "DEADLINE_EXCEEDED",
    HTTPStatus.CONFLICT: "ABORTED",
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.NOT_IMPLEMENTED: "UNIMPLEMENTED",
    HTTPStatus.BAD_GATEWAY: "UNAVAILABLE",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
    HTTPStatus.GATEWAY_TIMEOUT: "DEADLINE_EXCEEDED",
}
_CONFIG = "generationConfig."
_FIELDS = {
    "messages": "contents",
    "tool_choice": "toolConfig.functionCallingConfig.mode",
    "response_format": f"{_CONFIG}responseSchema",
    "grammar": f"{_CONFIG}responseSchema",
    "stop": f"{_CONFIG}stopSequences",
    "top_p": f"{_CONFIG}topP",
    "top_k": f"{_CONFIG}topK",
    "penalty_present": f"{_CONFIG}presencePenalty",
    "penalty_freq": f"{_CONFIG}frequencyPenalty",
    **{name: f"{_CONFIG}{name}" for name in ("temperature", "seed", "logprobs")},
}
"""The fields of this API whose values a backend refuses under its own names."""

_TYPES = "type.googleapis.com/google.rpc."


class GeminiErrors(JsonErrors):
    """Google's `ErrorShape`, with server-sent events."""

    def body(self, error: errors.ApiError) -> messages.JsonObject:
        """Google's error object; the details have the code, the field and the time to wait.

        A conversation that is too long is reported in Google's words, by which clients know it.
        """
        message = error.message
        if error.context_size:  # of a conversation that does not fit
            message = (
                f"The input token count ({error.prompt_tokens}) exceeds the maximum number of "
                f"tokens allowed ({error.context_size})."
            )
        is_servers_fault = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        usual_status = "INTERNAL" if is_servers_fault else "INVALID_ARGUMENT"
        return {
            "error": {
                "code": error.status,
                "message": message,
                "status": _STATUSES.get(error.status, usual_status),
                "details": _details(error),
            }
        }


class GeminiArrayErrors(GeminiErrors):
    """The same for a stream that is one array: the error is its last element."""

    def event(self, error: errors.ApiError) -> str:
        return f",\r\n{json_text.to_json(self.body(error))}]"


def _details(error: errors.ApiError) -> list[messages.JsonObject]:
    """The code, the field and the time to wait, as far as the error has them, in Google's types."""
    details: list[messages.JsonObject] = []
    if error.code:
        info = {"reason": error.code.upper(), "domain": "shepherd"}
        details.append({"@type": f"{_TYPES}ErrorInfo", **info})
    if error.param:
        field = _FIELDS.get(error.param, error.param)
        violation = {"field": field, "description": error.message}
        details.append({"@type": f"{_TYPES}BadRequest", "fieldViolations": [violation]})
    seconds = error.headers.get("Retry-After", "")
    if seconds.isdigit():
        details.append({"@type": f"{_TYPES}RetryInfo", "retryDelay": f"{seconds}s"})
    return details
