"""A generation in the shapes of the chat completions API."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from shepherd import events, json_text, messages, sampling
from shepherd.backends.base import Generation, ModelInfo
from shepherd.server.generation import ChoicePiece, PromptProgress
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.serving import Answer
from shepherd.server.wire import answers, fields, tools

_CHUNK = "chat.completion.chunk"


@dataclass
class ChatAnswer(Answer):
    """One answer, as an object or as the chunks of a stream.

    `reasoning`: whether the answer includes the reasoning.
    """

    request: ChatRequest
    model: ModelInfo
    reasoning: bool
    id: str = field(default_factory=partial(answers.new_id, "chatcmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))

    @cached_property
    def _fingerprint(self) -> str:
        return answers.fingerprint(self.model)

    def whole(self, generations: Sequence[Generation]) -> messages.JsonObject:
        """The whole answer, one choice for each generation."""
        choices = [self._choice(index, generation) for index, generation in enumerate(generations)]
        body = self._frame("chat.completion", choices) | {"usage": _usage(generations)}
        return body | self._measures(generations[0])

    def progress(self, progress: PromptProgress) -> str:
        """The frame that tells how far the prompt is read."""
        chunk = self._chunk(index=0, delta={})
        return json_text.frame(chunk | {"prompt_progress": answers.progress_fields(progress)})

    def begin(self, choice: int) -> Iterator[str]:
        """The chunk that carries the role."""
        yield json_text.frame(self._chunk(choice, {"role": "assistant", "content": None}))

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """The chunk for a text, none if the answer leaves it out."""
        delta = self._delta(piece)
        if delta:
            chunk = self._chunk(piece.choice, delta, logprobs=piece.logprobs)
            if self.request.timings_per_token:
                chunk["timings"] = answers.timings(self.choices.handle(piece.choice).stats())
            yield json_text.frame(chunk)

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """Two chunks for each call, its name and then its text, and the reason of the end."""
        for index, call in enumerate(self._calls(generation)):
            whole_call = self._wire_call(call)
            kind: str = whole_call["type"]
            key = "input" if kind == "custom" else "arguments"
            name_part = {"index": index, **whole_call, kind: {"name": call.name, key: ""}}
            text_part = {"index": index, kind: {key: whole_call[kind][key]}}
            for part in (name_part, text_part):
                yield json_text.frame(self._chunk(choice, {"tool_calls": [part]}))
        last = self._chunk(choice, delta={}, finish=_finish_reason(generation))
        # with the usage, one more chunk follows, which has the measures
        yield json_text.frame(last if self._ends_with_usage else last | self._measures(generation))

    def close(self, generations: Sequence[Generation]) -> Iterator[str]:
        """The usage, if it was requested, and the end."""
        if self._ends_with_usage:
            chunk = self._frame(_CHUNK, choices=[]) | {"usage": _usage(generations)}
            yield json_text.frame(chunk | self._measures(generations[0]))
        yield json_text.frame("[DONE]")

    @property
    def _ends_with_usage(self) -> bool:
        return fields.wants_usage(self.request.stream_options)

    def _calls(self, generation: Generation) -> Sequence[messages.ToolCall]:
        one_call = self.request.parallel_tool_calls is False
        return answers.calls_of(generation, one_call=one_call)

    def _measures(self, generation: Generation) -> messages.JsonObject:
        """What llama.cpp's server adds to the end of an answer."""
        body: messages.JsonObject = {"timings": answers.timings(generation.stats)}
        if self.request.verbose:  # all choices have the same prompt
            body["__verbose"] = {"prompt": self.choices.handle(0).prompt_text}
        return body

    def _choice(self, index: int, generation: Generation) -> messages.JsonObject:
        """One of the whole answers; its content is null where it only calls tools."""
        calls = self._calls(generation)
        logprobs = generation.logprobs
        # the texts of the answer replace its empty content
        message: messages.JsonObject = {
            "role": "assistant",
            "content": None if calls else "",
            "refusal": None,
        }
        for piece in answers.texts_of(generation):
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
        """The call of a function, or of a custom tool by the input that the model wrote."""
        if any(t.type == "custom" and t.tool.name == call.name for t in self.request.tools):
            custom = {"name": call.name, "input": tools.custom_input(call)}
            return {"id": call.id, "type": "custom", "custom": custom}
        function = {"name": call.name, "arguments": call.arguments_json}
        return {"id": call.id, "type": "function", "function": function}

    def _chunk(
        self,
        index: int,
        delta: messages.JsonObject,
        finish: str | None = None,
        logprobs: Sequence[sampling.TokenLogprob] = (),
    ) -> messages.JsonObject:
        """A chunk with more of the choice `index`."""
        # a text without tokens of its own has an empty list; the chunk of the role has no text
        has_text = "content" in delta and "role" not in delta
        has_logprobs = bool(logprobs) or (bool(self.request.logprobs) and has_text)
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": _logprobs(logprobs) if has_logprobs else None,
            "finish_reason": finish,
        }
        chunk = self._frame(_CHUNK, [choice])
        # OpenAI's chunks before the one with the usage have it as null
        return chunk | {"usage": None} if self._ends_with_usage else chunk

    def _frame(self, kind: str, choices: Sequence[messages.JsonObject]) -> messages.JsonObject:
        """The fields that the whole answer and each of its chunks have."""
        body: messages.JsonObject = {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.request.model or self.model.id,
            "system_fingerprint": self._fingerprint,
            "choices": list(choices),
        }
        return body if self.request.service_tier is None else body | {"service_tier": "default"}


def _finish_reason(generation: Generation) -> str:
    """OpenAI's name for the finish reason of the generation."""
    reason = generation.finish_reason
    if reason is events.FinishReason.LENGTH:
        return "length"
    # a backend may call it an ordinary stop; clients then would not run the calls
    stops_with_calls = reason is events.FinishReason.STOP and generation.message.tool_calls
    if reason is events.FinishReason.TOOL_CALLS or stops_with_calls:
        return "tool_calls"
    return "stop"


def _usage(generations: Sequence[Generation]) -> messages.JsonObject:
    """The usage object: all choices answer the one prompt, which is counted once."""
    return answers.completion_usage([generations[0].stats], generations)


def _logprobs(tokens: Sequence[sampling.TokenLogprob]) -> messages.JsonObject:
    """The `logprobs` object of a choice; there are no tokens of a refusal."""
    return {"content": answers.token_logprobs(tokens), "refusal": None}
