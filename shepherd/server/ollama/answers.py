"""A generation in the shapes of the Ollama API."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shepherd import events, json_text, messages
from shepherd.backends.base import Generation
from shepherd.server import errors, serving
from shepherd.server.generation import ChoicePiece
from shepherd.server.wire.answers import token_logprobs
from shepherd.server.wire.errors import JsonErrors


def now() -> str:
    """The time as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


@dataclass
class OllamaAnswer(serving.Answer):
    """One answer, as an object or as lines; `thinking`: whether it includes the reasoning.

    `is_chat`: the text is in a message, as in answers of `/api/chat`. `started` is the time of the
    request on the performance counter. `evicted` are the messages that left because the
    conversation did not fit.
    """

    model: str
    is_chat: bool
    thinking: bool = False
    started: float = field(default_factory=time.perf_counter)
    evicted: list[messages.Message] = field(default_factory=list[messages.Message])

    def whole(self, generations: Sequence[Generation]) -> messages.JsonObject:
        """The whole answer."""
        (generation,) = generations
        message = generation.message
        thinking = message.reasoning if self.thinking else ""
        answer = self._part(message.content, thinking, message.tool_calls)
        if generation.logprobs is not None:
            answer["logprobs"] = token_logprobs(generation.logprobs)
        return answer | self._end(generation)

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """The line of a text, none if the answer leaves it out."""
        if not piece.is_reasoning:
            part = self._part(piece.text)
            if piece.logprobs:
                part["logprobs"] = token_logprobs(piece.logprobs)
            yield line(part)
        elif self.thinking:
            yield line(self._part(thinking=piece.text))

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """The calls, then the end with the measures."""
        if generation.message.tool_calls:
            yield line(self._part(calls=generation.message.tool_calls))
        yield line(self._part() | self._end(generation))

    def without_text(self, reason: str) -> messages.JsonObject:
        """The answer to a request without a prompt: nothing was generated."""
        return self._part() | {"done": True, "done_reason": reason}

    def _part(
        self, text: str = "", thinking: str = "", calls: Sequence[messages.ToolCall] = ()
    ) -> messages.JsonObject:
        """An object with a part of the answer, after which more comes.

        Where there is no reasoning or no call, their fields are missing, as in Ollama's answers.
        """
        written: messages.JsonObject = {"content" if self.is_chat else "response": text}
        if thinking:
            written["thinking"] = thinking
        if self.is_chat:
            if calls:
                written["tool_calls"] = [_call(index, call) for index, call in enumerate(calls)]
            written = {"message": {"role": "assistant", **written}}
        return {"model": self.model, "created_at": now(), **written, "done": False}

    def _end(self, generation: Generation) -> messages.JsonObject:
        """Why it ended, and its measures; durations are in nanoseconds."""
        stats = generation.stats
        is_cut = generation.finish_reason is events.FinishReason.LENGTH
        evicted = {"truncated_messages": len(self.evicted)} if self.evicted else {}
        seconds = time.perf_counter() - self.started
        before = max(seconds - stats.prefill_seconds - stats.decode_seconds, 0)
        return {
            "done": True,
            "done_reason": "length" if is_cut else "stop",
            **evicted,
            "total_duration": nanoseconds(seconds),
            "load_duration": nanoseconds(before),  # Ollama counts waiting for a model, too
            "prompt_eval_count": stats.prompt_tokens,
            "prompt_eval_cached_count": stats.cached_tokens,
            "prompt_eval_duration": nanoseconds(stats.prefill_seconds),
            "eval_count": stats.completion_tokens,
            "eval_duration": nanoseconds(stats.decode_seconds),
        }


def _call(index: int, call: messages.ToolCall) -> messages.JsonObject:
    """A call as Ollama writes it: its place in the answer is a field of the function."""
    function = {"index": index, "name": call.name, "arguments": call.arguments}
    return {"id": call.id, "function": function}


def nanoseconds(seconds: float) -> int:
    """Seconds as Ollama writes them."""
    return round(seconds * 1e9)


class OllamaErrors(JsonErrors):
    """Ollama's `ErrorShape`; its streams are lines of JSON."""

    def body(self, error: errors.ApiError) -> messages.JsonObject:
        return {"error": error.message}

    def event(self, error: errors.ApiError) -> str:
        return line(self.body(error))


def line(data: messages.JsonObject) -> str:
    """One line of a stream."""
    return f"{json_text.to_json(data)}\n"
