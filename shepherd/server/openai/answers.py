"""A generation in the shapes of the chat completions API."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from shepherd import events, messages, sampling
from shepherd.backends.base import Generation, ModelInfo
from shepherd.json_text import frame
from shepherd.server.generation import ChoicePiece, PromptProgress
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.serving import Answer
from shepherd.server.wire.answers import (
    fingerprint,
    new_id,
    progress_fields,
    texts_of,
    timings,
    token_logprobs,
)
from shepherd.server.wire.tools import custom_input
from shepherd.session import Session

_CHUNK = "chat.completion.chunk"


@dataclass
class ChatAnswer(Answer):
    """One answer, as an object or as the chunks of a stream.

    `reasoning`: whether the answer includes the reasoning; `one_call`: whether all calls but the
    first are left out; `stream_usage`: whether a stream ends with the usage; `all_timings`: whether
    each chunk has them; `verbose`: whether the answer has the prompt. `custom` are the names of the
    custom tools.
    """

    model: str
    fingerprint: str = ""
    tier: str | None = None
    reasoning: bool = False
    one_call: bool = False
    stream_usage: bool = False
    all_timings: bool = False
    verbose: bool = False
    logprobs: bool = False
    custom: frozenset[str] = frozenset()
    id: str = field(default_factory=partial(new_id, "chatcmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def to_request(cls, request: ChatRequest, session: Session, model: ModelInfo) -> "ChatAnswer":
        """The answer to `request`, made by `model` under the name in the request."""
        options = request.stream_options
        return cls(
            model=request.model or model.id,
            fingerprint=fingerprint(model),
            tier=None if request.service_tier is None else "default",
            reasoning=session.thinking,
            one_call=request.parallel_tool_calls is False,
            stream_usage=bool(options is not None and options.include_usage),
            all_timings=bool(request.timings_per_token),
            verbose=bool(request.verbose),
            logprobs=bool(request.logprobs),
            custom=frozenset(t.tool.name for t in request.tools if t.type == "custom"),
        )

    def whole(self, generations: Sequence[Generation]) -> messages.JsonObject:
        """The whole answer, one choice for each generation."""
        choices = [self._choice(index, generation) for index, generation in enumerate(generations)]
        body = self._frame("chat.completion", choices) | {"usage": _usage(*generations)}
        return body | self._measures(generations[0])

    def progress(self, progress: PromptProgress) -> str:
        """The frame that tells how far the prompt is read."""
        return frame(self._chunk(0, {}) | {"prompt_progress": progress_fields(progress)})

    def begin(self, choice: int) -> Iterator[str]:
        """The chunk that carries the role."""
        yield frame(self._chunk(choice, {"role": "assistant", "content": None}))

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """The chunk for a text, none if the answer leaves it out."""
        delta = self._delta(piece)
        if delta:
            chunk = self._chunk(piece.choice, delta, logprobs=piece.logprobs)
            if self.all_timings and self.choices is not None:
                chunk["timings"] = timings(self.choices.handle(piece.choice).stats())
            yield frame(chunk)

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """Two chunks for each call, then the reason of the end."""
        for index, call in enumerate(self._calls(generation)):
            whole = self._wire_call(call)
            kind: str = whole["type"]
            text = "input" if kind == "custom" else "arguments"
            head = {"index": index, **whole, kind: {"name": call.name, text: ""}}
            rest = {"index": index, kind: {text: whole[kind][text]}}
            for part in (head, rest):
                yield frame(self._chunk(choice, {"tool_calls": [part]}))
        last = self._chunk(choice, {}, _finish_reason(generation))
        yield frame(last if self.stream_usage else last | self._measures(generation))

    def close(self, generations: Sequence[Generation]) -> Iterator[str]:
        """The usage, if it was requested, and the end."""
        if self.stream_usage:
            chunk = self._frame(_CHUNK, []) | {"usage": _usage(*generations)}
            yield frame(chunk | self._measures(generations[0]))
        yield frame("[DONE]")

    def _measures(self, generation: Generation) -> messages.JsonObject:
        """What llama.cpp's server adds to the end of an answer."""
        body: messages.JsonObject = {"timings": timings(generation.stats)}
        if self.verbose and self.choices is not None:
            body["__verbose"] = {"prompt": self.choices.handle(0).prompt_text}
        return body

    def _choice(self, index: int, generation: Generation) -> messages.JsonObject:
        calls, logprobs = self._calls(generation), generation.logprobs
        message: messages.JsonObject = {
            "role": "assistant",
            "content": None if calls else "",
            "refusal": None,
        }
        for piece in texts_of(generation):
            message |= self._delta(piece)
        if calls:
            message["tool_calls"] = [self._wire_call(call) for call in calls]
        return {
            "index": index,
            "message": message,
            "logprobs": None if logprobs is None else _logprobs(logprobs),
            "finish_reason": _finish_reason(generation),
        }

    def _delta(self, piece: ChoicePiece) -> messages.JsonObject:
        """The part of a message that has a text, empty if the answer leaves it out."""
        if piece.is_reasoning:
            return {"reasoning_content": piece.text} if self.reasoning else {}
        return {"content": piece.text}

    def _wire_call(self, call: messages.ToolCall) -> messages.JsonObject:
        if call.name in self.custom:
            custom = {"name": call.name, "input": custom_input(call)}
            return {"id": call.id, "type": "custom", "custom": custom}
        function = {"name": call.name, "arguments": call.arguments_json}
        return {"id": call.id, "type": "function", "function": function}

    def _calls(self, generation: Generation) -> tuple[messages.ToolCall, ...]:
        calls = generation.message.tool_calls
        return calls[:1] if self.one_call else calls

    def _chunk(
        self,
        index: int,
        delta: messages.JsonObject,
        finish: str | None = None,
        logprobs: Sequence[sampling.TokenLogprob] = (),
    ) -> messages.JsonObject:
        # A text without tokens of its own has an empty list; the chunk of the role has no text.
        has_text = "content" in delta and "role" not in delta
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": _logprobs(logprobs) if logprobs or (self.logprobs and has_text) else None,
            "finish_reason": finish,
        }
        chunk = self._frame(_CHUNK, [choice])
        return chunk | {"usage": None} if self.stream_usage else chunk

    def _frame(self, kind: str, choices: Sequence[messages.JsonObject]) -> messages.JsonObject:
        body: messages.JsonObject = {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": list(choices),
        }
        return body if self.tier is None else body | {"service_tier": self.tier}


def _finish_reason(generation: Generation) -> str:
    """OpenAI's name for the finish reason of the generation."""
    reason = generation.finish_reason
    if reason is events.FinishReason.STOP and generation.message.tool_calls:
        return "tool_calls"
    names = {events.FinishReason.LENGTH: "length", events.FinishReason.TOOL_CALLS: "tool_calls"}
    return names.get(reason, "stop")


def _usage(*generations: Generation) -> messages.JsonObject:
    """The usage object: the prompt once, the answers of all choices.

    Cached tokens are part of the prompt's tokens.
    """
    prompt = generations[0].stats
    completion = sum(generation.stats.completion_tokens for generation in generations)
    return {
        "prompt_tokens": prompt.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": prompt.cached_tokens},
    }


def _logprobs(tokens: Sequence[sampling.TokenLogprob]) -> messages.JsonObject:
    return {"content": token_logprobs(tokens), "refusal": None}
