"""A generation in the shapes of the chat completions API."""

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shepherd.backends.base import Generation
from shepherd.events import CallbackEvent, FinishReason
from shepherd.json_text import frame
from shepherd.logprobs import TokenLogprob
from shepherd.messages import JsonObject, ToolCall
from shepherd.server.generation import Choices, check_whole
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.responses import Frames
from shepherd.server.wire.openai_logprobs import token_logprobs
from shepherd.session import Session

_FINISH_REASONS = {FinishReason.LENGTH: "length", FinishReason.TOOL_CALLS: "tool_calls"}


def _new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


def _now() -> int:
    return int(time.time())


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """One answer, as an object or as the chunks of a stream.

    `reasoning`: whether the answer includes the reasoning; `one_call`: whether all calls but the
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

    def whole(self, generations: Sequence[Generation]) -> JsonObject:
        """The whole answer, one choice for each generation."""
        choices = [self._choice(index, generation) for index, generation in enumerate(generations)]
        return self._frame("chat.completion", choices) | {"usage": usage(*generations)}

    async def frames(self, choices: Choices) -> Frames:
        """Yields each choice's role chunk, its text chunks, then its final chunks."""
        started: set[int] = set()
        async for index, event, text, logprobs in choices:
            chunks = (
                [*self.last_chunks(await choices.result(index), index)]
                if event is None
                else [self.text_chunk(event, text, index, logprobs)]
            )
            if index not in started:
                started.add(index)
                yield frame(self.first_chunk(index))
            for chunk in filter(None, chunks):
                yield frame(chunk)
            if event is None:
                check_whole(await choices.result(index))
        usage = self.usage_chunk(*await choices.results())
        if usage is not None:
            yield frame(usage)
        yield frame("[DONE]")

    def first_chunk(self, choice: int = 0) -> JsonObject:
        """The chunk that carries the role."""
        return self._chunk(choice, {"role": "assistant", "content": ""})

    def text_chunk(
        self,
        event: CallbackEvent,
        text: str,
        choice: int = 0,
        logprobs: Sequence[TokenLogprob] = (),
    ) -> JsonObject | None:
        """The chunk for a text event, None if the answer leaves it out."""
        if event is CallbackEvent.THINKING:
            return self._chunk(choice, {"reasoning_content": text}) if self.reasoning else None
        return self._chunk(choice, {"content": text}, logprobs=logprobs)

    def last_chunks(self, generation: Generation, choice: int = 0) -> Iterator[JsonObject]:
        """The chunks behind the text of a choice: calls, and the reason unless it broke off."""
        for index, call in enumerate(self._calls(generation)):
            head = _wire_call(call) | {"function": {"name": call.name, "arguments": ""}}
            yield self._chunk(choice, {"tool_calls": [{"index": index, **head}]})
            rest = {"index": index, "function": {"arguments": call.arguments_json}}
            yield self._chunk(choice, {"tool_calls": [rest]})
        if generation.finish_reason is not FinishReason.ERROR:
            yield self._chunk(choice, {}, finish_reason(generation))

    def usage_chunk(self, *generations: Generation) -> JsonObject | None:
        """The last chunk of a stream, None unless the usage was requested."""
        if not self.stream_usage:
            return None
        return self._frame("chat.completion.chunk", []) | {"usage": usage(*generations)}

    def _choice(self, index: int, generation: Generation) -> JsonObject:
        reply, logprobs = generation.message, generation.logprobs
        calls = self._calls(generation)
        message: JsonObject = {
            "role": "assistant",
            "content": reply.content if reply.content or not calls else None,
            "refusal": None,
        }
        if self.reasoning and reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if calls:
            message["tool_calls"] = [_wire_call(call) for call in calls]
        return {
            "index": index,
            "message": message,
            "logprobs": None if logprobs is None else wire_logprobs(logprobs),
            "finish_reason": finish_reason(generation),
        }

    def _calls(self, generation: Generation) -> tuple[ToolCall, ...]:
        calls = generation.message.tool_calls
        return calls[:1] if self.one_call else calls

    def _chunk(
        self,
        index: int,
        delta: JsonObject,
        finish: str | None = None,
        logprobs: Sequence[TokenLogprob] = (),
    ) -> JsonObject:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": wire_logprobs(logprobs) if logprobs else None,
            "finish_reason": finish,
        }
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


def usage(*generations: Generation) -> JsonObject:
    """The usage object: the prompt once, the answers of all choices.

    Tokens that were in the cache are part of the prompt's.
    """
    prompt = generations[0].stats
    completion = sum(generation.stats.completion_tokens for generation in generations)
    return {
        "prompt_tokens": prompt.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": prompt.cached_tokens},
    }


def _wire_call(call: ToolCall) -> JsonObject:
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}


def wire_logprobs(tokens: Sequence[TokenLogprob]) -> JsonObject:
    """The `logprobs` object of a choice."""
    return {"content": token_logprobs(tokens), "refusal": None}
