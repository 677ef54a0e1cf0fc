"""A generation in the shapes of the chat completions API."""

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shepherd.backends.base import Generation, GenerationStats
from shepherd.events import CallbackEvent, FinishReason
from shepherd.messages import JsonObject, ToolCall
from shepherd.server.openai.requests import ChatRequest
from shepherd.session import Session

_FINISH_REASONS = {FinishReason.LENGTH: "length", FinishReason.TOOL_CALLS: "tool_calls"}


def _new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


def _now() -> int:
    return int(time.time())


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """One answer, as an object or as the chunks of a stream.

    `reasoning`: whether the model's reasoning is told; `one_call`: whether all calls but the
    first are left out; `stream_usage`: whether a stream ends with the usage.
    """

    model: str
    reasoning: bool = False
    one_call: bool = False
    stream_usage: bool = False
    id: str = field(default_factory=_new_id)
    created: int = field(default_factory=_now)

    @classmethod
    def to_request(cls, request: ChatRequest, session: Session, model: str) -> "ChatAnswer":
        """The answer to `request`, given by `model`."""
        options = request.stream_options
        return cls(
            model=model,
            reasoning=session.thinking,
            one_call=request.parallel_tool_calls is False,
            stream_usage=bool(options is not None and options.include_usage),
        )

    def completion(self, generation: Generation) -> JsonObject:
        """The whole answer."""
        said = generation.message
        calls = self._calls(generation)
        message: JsonObject = {
            "role": "assistant",
            "content": said.content if said.content or not calls else None,
            "refusal": None,
        }
        if self.reasoning and said.reasoning:
            message["reasoning_content"] = said.reasoning
        if calls:
            message["tool_calls"] = [_wire_call(call) for call in calls]
        choice: JsonObject = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_reason(generation),
        }
        return self._frame("chat.completion", [choice]) | {"usage": usage(generation.stats)}

    def first_chunk(self) -> JsonObject:
        """The chunk that carries the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def text_chunk(self, event: CallbackEvent, text: str) -> JsonObject | None:
        """The chunk for a text event, None if it is not told."""
        if event is CallbackEvent.THINKING:
            return self._chunk({"reasoning_content": text}) if self.reasoning else None
        return self._chunk({"content": text})

    def last_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        """What follows the text: the calls, the finish reason, the usage."""
        for index, call in enumerate(self._calls(generation)):
            head = _wire_call(call) | {"function": {"name": call.name, "arguments": ""}}
            yield self._chunk({"tool_calls": [{"index": index, **head}]})
            rest = {"index": index, "function": {"arguments": call.arguments_json}}
            yield self._chunk({"tool_calls": [rest]})
        yield self._chunk({}, finish_reason(generation))
        if self.stream_usage:
            yield self._frame("chat.completion.chunk", []) | {"usage": usage(generation.stats)}

    def _calls(self, generation: Generation) -> tuple[ToolCall, ...]:
        calls = generation.message.tool_calls
        return calls[:1] if self.one_call else calls

    def _chunk(self, delta: JsonObject, finish: str | None = None) -> JsonObject:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = self._frame("chat.completion.chunk", [choice])
        return chunk | {"usage": None} if self.stream_usage else chunk

    def _frame(self, kind: str, choices: Sequence[JsonObject]) -> JsonObject:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }


def finish_reason(generation: Generation) -> str:
    """OpenAI's word for why the generation ended."""
    reason = generation.finish_reason
    if reason is FinishReason.STOP and generation.message.tool_calls:
        return "tool_calls"
    return _FINISH_REASONS.get(reason, "stop")


def usage(stats: GenerationStats) -> JsonObject:
    """The usage object; tokens that were in the cache are part of the prompt's."""
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.completion_tokens,
        "total_tokens": stats.prompt_tokens + stats.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
    }


def _wire_call(call: ToolCall) -> JsonObject:
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}
