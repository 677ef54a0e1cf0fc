"""A streamed /api/chat answer as deltas."""

from collections.abc import Iterable, Iterator
from typing import Any

from shepherd.backends.api.adapter import (
    AnswerDecoder,
    CallDelta,
    Delta,
    ErrorDelta,
    StopDelta,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from shepherd.backends.api.coerce import (
    as_count,
    as_error_status,
    as_object,
    as_objects,
    as_text,
)
from shepherd.backends.api.openai.logprobs import token_logprob
from shepherd.events import FinishReason
from shepherd.messages import JsonObject

_LOAD_REASONS = {"load", "unload"}


class OllamaDecoder(AnswerDecoder):
    """Understands the lines of one answer."""

    def __init__(self) -> None:
        self._complete = False
        self._calls = 0

    @property
    def complete(self) -> bool:
        return self._complete

    def feed(self, name: str, data: JsonObject) -> list[Delta]:
        if "error" in data:
            self._complete = True
            return [ErrorDelta(data, as_error_status(data.get("status_code")))]
        deltas: list[Delta] = []
        message = as_object(data.get("message"))
        if thinking := as_text(message.get("thinking")):
            deltas.append(ThinkingDelta(thinking))
        content = as_text(message.get("content"))
        logprobs = ()
        if "logprobs" in data:
            logprobs = tuple(map(token_logprob, as_objects(data["logprobs"])))
        if content or logprobs:
            deltas.append(TextDelta(content, logprobs))
        if "tool_calls" in message:
            deltas += self._call_deltas(as_objects(message["tool_calls"]))
        if data.get("done") is True and not self._complete:
            self._complete = True
            deltas += _usage(data)
            deltas.append(self._stop(as_text(data.get("done_reason"))))
        return deltas

    def _call_deltas(self, calls: Iterable[JsonObject]) -> list[CallDelta]:
        """Calls arrive whole; an entry without a name is not a call."""
        result: list[CallDelta] = []
        for call in calls:
            function = as_object(call.get("function"))
            if name := as_text(function.get("name")):
                arguments = _arguments(function.get("arguments"))
                result.append(CallDelta(self._calls, as_text(call.get("id")), name, arguments))
                self._calls += 1
        return result

    def _stop(self, reason: str) -> StopDelta:
        if reason == "length":
            return StopDelta(FinishReason.LENGTH)
        if reason in _LOAD_REASONS:
            return StopDelta(FinishReason.STOP, f"Ollama did no more than {reason} the model")
        return StopDelta(FinishReason.TOOL_CALLS if self._calls else FinishReason.STOP)


def _usage(data: JsonObject) -> Iterator[UsageDelta]:
    """Some versions leave out the prompt's count if all of it was cached."""
    prompt, answer = as_count(data.get("prompt_eval_count")), as_count(data.get("eval_count"))
    if prompt is not None or answer is not None:
        yield UsageDelta(prompt, as_count(data.get("prompt_eval_cached_count")), answer)


def _arguments(value: Any) -> str | JsonObject:
    """An object as documented; some models' parsers send its text instead."""
    return value if isinstance(value, str) else as_object(value)
