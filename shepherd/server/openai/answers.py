"""A generation in the shapes of the chat completions API."""

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shepherd.backends.base import Generation, ModelInfo
from shepherd.events import CallbackEvent, FinishReason
from shepherd.json_text import frame
from shepherd.logprobs import TokenLogprob
from shepherd.messages import JsonObject, ToolCall
from shepherd.server.generation import Choices, check_whole
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.tools import custom_names
from shepherd.server.progress import PromptProgress
from shepherd.server.responses import Frames
from shepherd.server.wire.answers import fingerprint, progress_fields, timings, token_logprobs
from shepherd.server.wire.custom_tools import custom_input
from shepherd.session import Session

_FINISH_REASONS = {FinishReason.LENGTH: "length", FinishReason.TOOL_CALLS: "tool_calls"}


def _new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


def _now() -> int:
    return int(time.time())


@dataclass(slots=True)
class ChatAnswer:
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
    choices: Choices | None = None
    id: str = field(default_factory=_new_id)
    created: int = field(default_factory=_now)

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
            custom=custom_names(request.tools),
        )

    def attach(self, choices: Choices) -> None:
        """Take the choices that are answered, for what a generation alone does not tell."""
        self.choices = choices

    def whole(self, generations: Sequence[Generation]) -> JsonObject:
        """The whole answer, one choice for each generation."""
        choices = [self._choice(index, generation) for index, generation in enumerate(generations)]
        body = self._frame("chat.completion", choices) | {"usage": usage(*generations)}
        return body | self._measures(generations[0])

    def progress(self, progress: PromptProgress) -> str:
        """The frame that tells how far the prompt is read."""
        return frame(self._chunk(0, {}) | {"prompt_progress": progress_fields(progress)})

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
                live = self.all_timings and event is not None
                extra = {"timings": timings(choices.handle(index).stats())} if live else {}
                yield frame(chunk | extra)
            if event is None:
                check_whole(await choices.result(index))
        usage = self.usage_chunk(*await choices.results())
        if usage is not None:
            yield frame(usage)
        yield frame("[DONE]")

    def first_chunk(self, choice: int = 0) -> JsonObject:
        """The chunk that carries the role."""
        return self._chunk(choice, {"role": "assistant", "content": None})

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
        """The chunks after a choice's text: calls, and the reason of a complete answer."""
        for index, call in enumerate(self._calls(generation)):
            whole = self._wire_call(call)
            kind: str = whole["type"]
            field = "input" if kind == "custom" else "arguments"
            head = whole | {kind: {"name": call.name, field: ""}}
            yield self._chunk(choice, {"tool_calls": [{"index": index, **head}]})
            rest = {"index": index, kind: {field: whole[kind][field]}}
            yield self._chunk(choice, {"tool_calls": [rest]})
        if generation.finish_reason is not FinishReason.ERROR:
            last = self._chunk(choice, {}, finish_reason(generation))
            yield last if self.stream_usage else last | self._measures(generation)

    def usage_chunk(self, *generations: Generation) -> JsonObject | None:
        """The last chunk of a stream, None unless the usage was requested."""
        if not self.stream_usage:
            return None
        chunk = self._frame("chat.completion.chunk", []) | {"usage": usage(*generations)}
        return chunk | self._measures(generations[0])

    def _measures(self, generation: Generation) -> JsonObject:
        """What llama.cpp's server adds to the end of an answer."""
        body: JsonObject = {"timings": timings(generation.stats)}
        if self.verbose and self.choices is not None:
            body["__verbose"] = {"prompt": self.choices.handle(0).prompt_text}
        return body

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
            message["tool_calls"] = [self._wire_call(call) for call in calls]
        return {
            "index": index,
            "message": message,
            "logprobs": None if logprobs is None else wire_logprobs(logprobs),
            "finish_reason": finish_reason(generation),
        }

    def _wire_call(self, call: ToolCall) -> JsonObject:
        if call.name in self.custom:
            custom = {"name": call.name, "input": custom_input(call)}
            return {"id": call.id, "type": "custom", "custom": custom}
        function = {"name": call.name, "arguments": call.arguments_json}
        return {"id": call.id, "type": "function", "function": function}

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
        expected = self.logprobs and "content" in delta and "role" not in delta
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": wire_logprobs(logprobs) if logprobs or expected else None,
            "finish_reason": finish,
        }
        chunk = self._frame("chat.completion.chunk", [choice])
        return chunk | {"usage": None} if self.stream_usage else chunk

    def _frame(self, kind: str, choices: Sequence[JsonObject]) -> JsonObject:
        body: JsonObject = {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": list(choices),
        }
        return body if self.tier is None else body | {"service_tier": self.tier}


def finish_reason(generation: Generation) -> str:
    """OpenAI's name for the finish reason of the generation."""
    reason = generation.finish_reason
    if reason is FinishReason.STOP and generation.message.tool_calls:
        return "tool_calls"
    return _FINISH_REASONS.get(reason, "stop")


def usage(*generations: Generation) -> JsonObject:
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


def wire_logprobs(tokens: Sequence[TokenLogprob]) -> JsonObject:
    """The `logprobs` object of a choice."""
    return {"content": token_logprobs(tokens), "refusal": None}
