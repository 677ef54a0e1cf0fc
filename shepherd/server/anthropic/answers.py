"""A generation in the shapes of the Messages API."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shepherd.backends.base import Generation, GenerationStats
from shepherd.events import CallbackEvent, FinishReason
from shepherd.json_text import frame
from shepherd.messages import JsonObject, ToolCall
from shepherd.server.anthropic.thoughts import Thoughts
from shepherd.server.generation import Choices, check_whole
from shepherd.server.responses import Frames
from shepherd.server.wire.answers import reasoning_tokens

PING = frame({"type": "ping"}, "ping")


def _new_id() -> str:
    return f"msg_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class MessageAnswer:
    """One answer, as a message or as the events of a stream.

    `reasoning`: whether the answer has blocks for reasoning; `hidden`: they are empty, and their
    signatures carry the text. `one_call`: all calls but the first are left out. `limit` is the
    request's `max_tokens`. `edits`: the request names edits of its context, of which none is
    applied.
    """

    model: str
    thoughts: Thoughts
    reasoning: bool = False
    hidden: bool = False
    one_call: bool = False
    limit: int = 1
    edits: bool = False
    id: str = field(default_factory=_new_id)

    def whole(self, generations: Sequence[Generation]) -> JsonObject:
        """The whole answer."""
        generation = generations[0]
        message = self._message(generation.stats) | {"content": self._content(generation)}
        end = self._end(generation)
        return message | end["delta"] | {"usage": end["usage"]} | self._edits()

    async def frames(self, choices: Choices) -> Frames:
        """Yields the start of the message, its blocks in their order, and its end."""
        blocks = _Blocks(self)
        started = False
        async for _, event, text, _ in choices:
            generation = await choices.result(0) if event is None else None
            if not started:
                started = True
                yield _event("message_start", message=self._message(choices.prompt))
                yield PING
            if event is not None:
                for piece in blocks.text(event, text):
                    yield piece
            elif generation is not None:
                for piece in blocks.rest(generation):
                    yield piece
                check_whole(generation)
                yield _event("message_delta", **self._end(generation), **self._edits())
                yield _event("message_stop")

    def shows(self, event: CallbackEvent) -> bool:
        """Whether text of this kind is part of the answer."""
        return self.reasoning or event is not CallbackEvent.THINKING

    def calls(self, generation: Generation) -> tuple[ToolCall, ...]:
        """The calls that are part of the answer."""
        calls = generation.message.tool_calls
        return calls[:1] if self.one_call else calls

    def redacted(self, generation: Generation) -> Iterator[JsonObject]:
        """The block that carries what a provider wants back, if there is any."""
        if self.reasoning:
            data = self.thoughts.redacted(generation.message)
            if data:
                yield {"type": "redacted_thinking", "data": data}

    def _content(self, generation: Generation) -> list[JsonObject]:
        message, blocks = generation.message, list[JsonObject]()
        if message.reasoning and self.shows(CallbackEvent.THINKING):
            signature = self.thoughts.signature(message.reasoning, hidden=self.hidden)
            text = "" if self.hidden else message.reasoning
            blocks.append({"type": "thinking", "thinking": text, "signature": signature})
        if message.content:
            blocks.append({"type": "text", "text": message.content})
        blocks += self.redacted(generation)
        blocks += [call_block(call) | {"input": call.arguments} for call in self.calls(generation)]
        return blocks

    def _message(self, stats: GenerationStats) -> JsonObject:
        """The message before anything was generated."""
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage(stats, 0),
        }

    def _end(self, generation: Generation) -> JsonObject:
        reason, stats = self._stop_reason(generation), generation.stats
        stop_string = generation.stop_string if reason == "stop_sequence" else None
        return {
            "delta": {"stop_reason": reason, "stop_sequence": stop_string},
            "usage": usage(stats, stats.completion_tokens) | self._details(generation),
        }

    def _stop_reason(self, generation: Generation) -> str:
        stats = generation.stats
        if generation.finish_reason is FinishReason.LENGTH:
            is_limit = stats.completion_tokens >= self.limit or not stats.context_size
            is_full = stats.context_used >= stats.context_size and not is_limit
            return "model_context_window_exceeded" if is_full else "max_tokens"
        if self.calls(generation):
            return "tool_use"
        return "stop_sequence" if generation.stop_string else "end_turn"

    def _details(self, generation: Generation) -> JsonObject:
        if not self.reasoning:
            return {}
        return {"output_tokens_details": {"thinking_tokens": reasoning_tokens(generation)}}

    def _edits(self) -> JsonObject:
        return {"context_management": {"applied_edits": []}} if self.edits else {}


class _Blocks:
    """The events of the blocks of a stream; one block is open at a time."""

    def __init__(self, answer: MessageAnswer) -> None:
        self._answer = answer
        self._index = -1
        self._open = ""
        self._reasoning: list[str] = []

    def text(self, event: CallbackEvent, text: str) -> Iterator[str]:
        """More text of the answer or of the reasoning."""
        if not self._answer.shows(event):
            return
        thinking = event is CallbackEvent.THINKING
        kind = "thinking" if thinking else "text"
        if self._open != kind:
            yield from self._close()
            empty = {"type": kind, kind: ""} | ({"signature": ""} if thinking else {})
            yield self._start(kind, empty)
        if thinking:
            self._reasoning.append(text)
        if not (thinking and self._answer.hidden):
            yield self._delta({"type": f"{kind}_delta", kind: text})

    def rest(self, generation: Generation) -> Iterator[str]:
        """What follows the text: the end of its block, and the calls."""
        yield from self._close()
        for block in self._answer.redacted(generation):
            yield self._start("redacted_thinking", block)
            yield from self._close()
        for call in self._answer.calls(generation):
            yield self._start("tool_use", call_block(call))
            yield self._delta({"type": "input_json_delta", "partial_json": call.arguments_json})
            yield from self._close()

    def _start(self, kind: str, block: JsonObject) -> str:
        self._index += 1
        self._open = kind
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: JsonObject) -> str:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> Iterator[str]:
        """End the open block; reasoning gets its signature."""
        if not self._open:
            return
        if self._open == "thinking":
            text, hidden = "".join(self._reasoning), self._answer.hidden
            self._reasoning.clear()
            signature = self._answer.thoughts.signature(text, hidden=hidden)
            yield self._delta({"type": "signature_delta", "signature": signature})
        self._open = ""
        yield _event("content_block_stop", index=self._index)


def usage(stats: GenerationStats, output_tokens: int) -> JsonObject:
    """The usage object; tokens that were in the cache are not among the input tokens."""
    return {
        "input_tokens": max(0, stats.prompt_tokens - stats.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": stats.cached_tokens,
        "output_tokens": output_tokens,
    }


def call_block(call: ToolCall) -> JsonObject:
    """The `tool_use` block of a call, without its arguments."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}


def _event(type: str, **fields: object) -> str:
    return frame({"type": type} | fields, type)
