"""The answer of chat completions, streamed or whole."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from shepherd.backends.api.adapter import (
    AnswerDecoder,
    Delta,
    ExtraDelta,
    StopDelta,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from shepherd.backends.api.coerce import as_count, as_object, as_objects, as_text
from shepherd.backends.api.openai.chat_calls import CallSlots, ReasoningDetails, detail_text
from shepherd.backends.api.openai.errors import error_delta
from shepherd.backends.api.openai.logprobs import token_logprobs
from shepherd.events import FinishReason
from shepherd.messages import JsonObject

FILTERED = "The provider's content filter ended the answer."
REFUSED = "The model refused to answer."

_REASONS = {
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "error": FinishReason.ERROR,
}

_THOUGHTS = frozenset({"reasoning_details", "reasoning_content", "reasoning"})
_CALLS = frozenset({"tool_calls", "function_call"})


class ChatDecoder(AnswerDecoder):
    """Reads chunks, and whole answers of servers that do not stream; only the first choice."""

    def __init__(self) -> None:
        self._calls = CallSlots()
        self._details = ReasoningDetails()
        self._has_output = False
        self._refused = False
        self._stopped = False

    @property
    def complete(self) -> bool:
        return self._stopped

    def feed(self, name: str, data: JsonObject) -> Iterable[Delta]:
        text = _plain_text(data)
        if not text:
            return self._deltas(data)
        self._has_output = True
        return (TextDelta(text),)

    def _deltas(self, data: JsonObject) -> Iterator[Delta]:
        error = data.get("error")
        if error or data.get("object") == "error":
            yield error_delta(data if isinstance(error, dict) or not error else {"error": error})
            return
        if usage := _usage(data):
            yield usage
        for choice in as_objects(data.get("choices")):
            if not as_count(choice.get("index")):
                yield from self._choice(choice)

    def _choice(self, choice: JsonObject) -> Iterator[Delta]:
        delta = choice.get("delta")
        whole = as_object(choice.get("message"))
        message = as_object(delta) if isinstance(delta, dict) or self._has_output else whole
        if not _THOUGHTS.isdisjoint(message):
            yield from self._thoughts(message)
        yield from self._text(message, choice)
        if not _CALLS.isdisjoint(message):
            yield from self._tool_calls(message)
        if usage := _usage(choice):
            yield usage
        reason = as_text(choice.get("finish_reason"))
        if reason and not self._stopped:
            self._stopped = True
            yield from self._stop(reason, _stop_string(choice))

    def _thoughts(self, message: JsonObject) -> Iterator[Delta]:
        """The reasoning, which is in one of several fields, or in two at once."""
        details = as_objects(message.get("reasoning_details"))
        self._details.take(details)
        plain = as_text(message.get("reasoning_content")) or as_text(message.get("reasoning"))
        thought = plain or "".join(map(detail_text, details))
        if thought:
            self._has_output = True
            yield ThinkingDelta(thought)

    def _text(self, message: JsonObject, choice: JsonObject) -> Iterator[Delta]:
        deltas = _content(message.get("content"))
        logprobs = as_object(choice.get("logprobs"))
        if logprobs and deltas and isinstance(deltas[-1], TextDelta):
            deltas[-1] = deltas[-1]._replace(logprobs=token_logprobs(logprobs))
        if deltas:
            self._has_output = True
            yield from deltas
        if refusal := as_text(message.get("refusal")):
            self._has_output = self._refused = True
            yield TextDelta(refusal)

    def _tool_calls(self, message: JsonObject) -> Iterator[Delta]:
        fragments = as_objects(message.get("tool_calls"))
        if old_style := as_object(message.get("function_call")):
            fragments.append({"index": 0, "function": old_style})
        for fragment in fragments:
            self._has_output = True
            yield from self._calls.take(fragment)

    def _stop(self, reason: str, stop_string: str) -> Iterator[Delta]:
        if self._details:
            yield ExtraDelta({"reasoning_details": self._details.merged()})
        note = FILTERED if reason == "content_filter" else REFUSED if self._refused else ""
        ended = _REASONS.get(reason, FinishReason.STOP)
        if ended is FinishReason.STOP and self._calls:
            ended = FinishReason.TOOL_CALLS
        yield StopDelta(ended, note, stop_string)


_BESIDE_TEXT = ("error", "usage", "x_groq")
_BESIDE_DELTA = ("index", "finish_reason", "logprobs", "usage")
_TEXT_FIELDS = frozenset({"content", "role"})


def _plain_text(data: JsonObject) -> str:
    """The text of a chunk that has nothing else, as most have; "" for all others."""
    choices = data.get("choices")
    if not isinstance(choices, list) or len(cast(list[Any], choices)) != 1:
        return ""
    choice = cast(list[Any], choices)[0]
    if not isinstance(choice, dict) or data.get("object") == "error":
        return ""
    fields = cast(JsonObject, choice)
    delta = fields.get("delta")
    if not isinstance(delta, dict) or any(map(data.get, _BESIDE_TEXT)):
        return ""
    message = cast(JsonObject, delta)
    content = message.get("content")
    if not isinstance(content, str) or any(map(fields.get, _BESIDE_DELTA)):
        return ""
    others = message.keys() - _TEXT_FIELDS
    return "" if others and any(map(message.get, others)) else content


def _stop_string(choice: JsonObject) -> str:
    """The stop string that ended a choice: vLLM and SGLang say it, each in a field of its own."""
    return as_text(choice.get("stop_reason")) or as_text(choice.get("matched_stop"))


def _content(content: object) -> list[Delta]:
    """The text of a string or of parts; some of Mistral's parts are thoughts."""
    if isinstance(content, str):
        return [TextDelta(content)] if content else []
    deltas: list[Delta] = []
    for part in as_objects(content):
        inner = part.get("thinking")
        thought = as_text(inner) or "".join(as_text(p.get("text")) for p in as_objects(inner))
        if thought:
            deltas.append(ThinkingDelta(thought))
        elif text := as_text(part.get("text")) or as_text(part.get("refusal")):
            deltas.append(TextDelta(text))
    return deltas


def _usage(holder: JsonObject) -> UsageDelta | None:
    """The usage: in a chunk, in a choice (Moonshot) or beside it (Groq)."""
    usage = as_object(holder.get("usage"))
    if not usage and "x_groq" in holder:
        usage = as_object(as_object(holder.get("x_groq")).get("usage"))
    if not usage:
        return None
    details = as_object(usage.get("prompt_tokens_details"))
    cached = as_count(details.get("cached_tokens"))
    return UsageDelta(
        as_count(usage.get("prompt_tokens")),
        as_count(usage.get("prompt_cache_hit_tokens")) if cached is None else cached,
        as_count(usage.get("completion_tokens")),
    )
