"""A generation in the shapes of the Messages API."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from msgspec import Struct
from msgspec.structs import replace

from shepherd.backends.base import Generation, ModelInfo
from shepherd.events import FinishReason, Stats
from shepherd.json_text import frame
from shepherd.messages import JsonObject, Message, ToolCall
from shepherd.server import errors, serving
from shepherd.server.anthropic.requests import CountRequest, MessagesRequest
from shepherd.server.generation import ChoicePiece
from shepherd.server.seal import Seal, SealError
from shepherd.server.wire.answers import calls_of, new_id, reasoning_tokens, texts_of
from shepherd.server.wire.errors import JsonErrors

_VISIBLE = "anthropic thinking"
_HIDDEN = "anthropic hidden thinking"
_EXTRA = "anthropic extra"


class Thoughts(Struct, frozen=True):
    """Signs reasoning when it leaves, and checks it when it comes back.

    A signature carries the reasoning itself where the answer leaves it out. A `redacted_thinking`
    block carries what a provider wants back unchanged with the message.
    """

    seal: Seal

    def signature(self, text: str, *, hidden: bool = False) -> str:
        """The signature of reasoning; `hidden`: it carries the text."""
        return self.seal.wrap(_HIDDEN, text) if hidden else self.seal.sign(_VISIBLE, text)

    def text(self, text: str, signature: str) -> str:
        """The reasoning of a `thinking` block; raises ValueError if it is not ours."""
        if self.seal.verify(_VISIBLE, text, signature):
            return text
        hidden = self.seal.unwrap(_HIDDEN, signature)
        if text not in ("", hidden):  # a client may have put the hidden text into its place
            raise SealError("the text was changed")
        return hidden

    def redacted(self, message: Message) -> str:
        """The data of a `redacted_thinking` block for the extras of a message, "" if it has none.

        Extras are what a provider wants back unchanged with a message and with its calls.
        """
        calls = {call.id: dict(call.extra) for call in message.tool_calls if call.extra}
        if not message.extra and not calls:
            return ""
        extras = {"message": dict(message.extra), "calls": calls}
        return self.seal.wrap(_EXTRA, json.dumps(extras))

    def with_extras(self, message: Message, data: str) -> Message:
        """The message with the extras in the data of its block; raises ValueError."""
        extras = json.loads(self.seal.unwrap(_EXTRA, data))
        of_calls = extras["calls"]
        calls = [replace(call, extra=of_calls.get(call.id, {})) for call in message.tool_calls]
        return replace(message, extra=extras["message"], tool_calls=tuple(calls))


PING = frame({"type": "ping"}, "ping")


@dataclass
class MessageAnswer(serving.Answer):
    """One answer, as a message or as the events of a stream.

    `reasoning`: whether the answer has blocks for reasoning.
    """

    request: MessagesRequest | CountRequest
    model: ModelInfo
    thoughts: Thoughts
    reasoning: bool
    id: str = field(default_factory=partial(new_id, "msg_"))

    def __post_init__(self) -> None:
        thinking = self.request.thinking
        hidden = thinking is not None and thinking.display == "omitted"
        self._blocks = _Blocks(self.thoughts, hidden=hidden)

    def whole(self, generations: Sequence[Generation]) -> JsonObject:
        """The whole answer: the blocks that the events of its stream make."""
        (generation,) = generations
        for piece in texts_of(generation):
            list(self.add(piece))  # makes the blocks; nobody reads the events
        list(self._after_text(generation))
        end = self._end(generation)
        message = self._message(generation.stats) | {"content": self._blocks.content}
        return message | end["delta"] | {"usage": end["usage"]} | self._edits()

    def begin(self, choice: int) -> Iterator[str]:
        """The start of the message."""
        yield _event("message_start", message=self._message(self.choices.prompt))
        yield PING

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """More text of the answer or of the reasoning."""
        if self.reasoning or not piece.is_reasoning:
            yield from self._blocks.text("thinking" if piece.is_reasoning else "text", piece.text)

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """The calls, and the end of the message."""
        yield from self._after_text(generation)
        yield _event("message_delta", **self._end(generation), **self._edits())
        yield _event("message_stop")

    def _after_text(self, generation: Generation) -> Iterator[str]:
        """What a provider wants back, and the calls."""
        yield from self._blocks.close()
        data = self.thoughts.redacted(generation.message) if self.reasoning else ""
        if data:
            yield from self._blocks.whole({"type": "redacted_thinking", "data": data})
        choice = self.request.tool_choice
        one_call = choice is not None and choice.disable_parallel_tool_use is True
        for call in calls_of(generation, one_call=one_call):
            yield from self._blocks.call(call)

    def _message(self, stats: Stats) -> JsonObject:
        """The message before anything was generated."""
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model or self.model.id,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(stats, output_tokens=0),
        }

    def _end(self, generation: Generation) -> JsonObject:
        """The fields of `message_delta`: why the answer ended, and its usage."""
        reason, stats = self._stop_reason(generation), generation.stats
        stop_string = generation.stop_string if reason == "stop_sequence" else None
        usage = _usage(stats, stats.completion_tokens)
        if self.reasoning:
            usage["output_tokens_details"] = {"thinking_tokens": reasoning_tokens(generation)}
        return {"delta": {"stop_reason": reason, "stop_sequence": stop_string}, "usage": usage}

    def _stop_reason(self, generation: Generation) -> str:
        """Anthropic's word for why the answer ended."""
        stats = generation.stats
        if generation.finish_reason is FinishReason.LENGTH:
            is_full = 0 < stats.context_size <= stats.context_used  # a size of 0 is unknown
            # where the request's limit is reached too, that is the reason
            if is_full and stats.completion_tokens < (self.request.max_tokens or 0):
                return "model_context_window_exceeded"
            return "max_tokens"
        if generation.message.tool_calls:
            return "tool_use"
        return "stop_sequence" if generation.stop_string else "end_turn"

    def _edits(self) -> JsonObject:
        """The answer to a request that names edits of its context: none is applied."""
        edits = self.request.context_management
        return {"context_management": {"applied_edits": []}} if edits else {}


class _Blocks:
    """The blocks of an answer so far, of which one may be open; each method yields the events."""

    def __init__(self, thoughts: Thoughts, *, hidden: bool) -> None:
        """`hidden`: the text of reasoning is in its signature alone."""
        self.content: list[JsonObject] = []  # the blocks that are complete
        self._thoughts, self._hidden = thoughts, hidden
        # the open block: `thinking`, `text` or "" for none, and its text in pieces
        self._open_kind = ""
        self._open_texts: list[str] = []

    def text(self, kind: str, text: str) -> Iterator[str]:
        """Text of the kind `thinking` or `text`, which may begin a block."""
        if self._open_kind != kind:
            yield from self.close()
            self._open_kind = kind
            empty = {"type": kind, kind: ""}
            if kind == "thinking":
                empty["signature"] = ""
            yield self._start(empty)
        self._open_texts.append(text)
        if kind == "text" or not self._hidden:
            yield self._delta({"type": f"{kind}_delta", kind: text})

    def close(self) -> Iterator[str]:
        """End the open block, if there is one; reasoning gets its signature."""
        kind, self._open_kind = self._open_kind, ""
        if not kind:
            return
        text = "".join(self._open_texts)
        self._open_texts.clear()
        block = {"type": kind, kind: text}
        if kind == "thinking":
            block["signature"] = self._thoughts.signature(text, hidden=self._hidden)
            block["thinking"] = "" if self._hidden else text
            yield self._delta({"type": "signature_delta", "signature": block["signature"]})
        yield self._stop(block)

    def whole(self, block: JsonObject) -> Iterator[str]:
        """A block that comes at once."""
        yield self._start(block)
        yield self._stop(block)

    def call(self, call: ToolCall) -> Iterator[str]:
        """A call; as in Anthropic's streams, its arguments come in a delta and not at the start."""
        block: JsonObject = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        yield self._start(block)
        yield self._delta({"type": "input_json_delta", "partial_json": call.arguments_json})
        yield self._stop(block | {"input": call.arguments})

    def _start(self, block: JsonObject) -> str:
        return _event("content_block_start", index=len(self.content), content_block=block)

    def _delta(self, delta: JsonObject) -> str:
        return _event("content_block_delta", index=len(self.content), delta=delta)

    def _stop(self, block: JsonObject) -> str:
        self.content.append(block)
        return _event("content_block_stop", index=len(self.content) - 1)


def _usage(stats: Stats, output_tokens: int) -> JsonObject:
    """The usage object; tokens that were in the cache are not among the input tokens."""
    return {
        "input_tokens": max(0, stats.prompt_tokens - stats.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": stats.cached_tokens,
        "output_tokens": output_tokens,
    }


def _event(type: str, **fields: object) -> str:
    """The server-sent event of a type, which its data names once more."""
    return frame({"type": type} | fields, type)


OVERLOADED = 529
_BUSY = frozenset({"server_busy", "too_many_connections", "provider_busy"})
_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.PAYMENT_REQUIRED: "billing_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
    OVERLOADED: "overloaded_error",
}


class AnthropicErrors(JsonErrors):
    """Anthropic's `ErrorShape`."""

    def body(self, error: errors.ApiError) -> JsonObject:
        """Anthropic's error object."""
        status = _status(error)
        is_servers_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        usual_type = "api_error" if is_servers_fault else "invalid_request_error"
        reported: JsonObject = {"type": _TYPES.get(status, usual_type), "message": _message(error)}
        if error.code is not None:
            reported["details"] = {"error_code": error.code}
        return {"type": "error", "error": reported, "request_id": error.request_id or None}

    def reply(self, error: errors.ApiError) -> errors.ErrorReply:
        return errors.ErrorReply(_status(error), self.body(error), error.headers)

    def event(self, error: errors.ApiError) -> str:
        return frame(self.body(error), "error")


def _status(error: errors.ApiError) -> int:
    """The HTTP status; for a busy server Anthropic has one of its own."""
    return OVERLOADED if error.code in _BUSY else error.status


def _message(error: errors.ApiError) -> str:
    """The message; clients know a conversation that is too long by its first words."""
    if error.code != errors.CONTEXT_FULL:
        return error.message
    if error.context_size:
        return f"prompt is too long: {error.prompt_tokens} tokens > {error.context_size} maximum"
    return f"prompt is too long: {error.message}"
