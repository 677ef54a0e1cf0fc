"""Requests and events held against the types of OpenAI's own package; unknown fields fail."""

from collections.abc import Iterable
from functools import cache
from types import GenericAlias
from typing import Any, cast

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import ConfigDict, TypeAdapter

from shepherd.backends.api import stream
from shepherd.messages import JsonObject


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # in a list, so that the settings hold for the typed dictionaries inside
    kinds: Any = GenericAlias(list, (kind,))
    adapter: TypeAdapter[Any] = TypeAdapter(kinds, config=ConfigDict(extra="forbid"))
    return adapter


def valid_chat(body: JsonObject) -> JsonObject:
    """The body of a chat request, which OpenAI's types take."""
    return _valid(CompletionCreateParamsStreaming, body)


def valid_responses(body: JsonObject) -> JsonObject:
    """The body of a responses request, which OpenAI's types take."""
    return _valid(ResponseCreateParamsStreaming, body)


def _valid(kind: Any, body: JsonObject) -> JsonObject:
    _consume(_adapter(kind).validate_python([body]))
    return body


def _consume(value: Any) -> None:
    """Go through everything: what is `Iterable` is validated only when it is read."""
    if isinstance(value, dict):
        for inner in cast(dict[str, Any], value).values():
            _consume(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for inner in cast(Iterable[Any], value):
            _consume(inner)


def fed(decoder: stream.Decoder, *events: JsonObject) -> list[stream.Delta]:
    """All deltas of events."""
    return [delta for event in events for delta in decoder.feed("", event)]


def chunk(choice: JsonObject | None = None, **more: Any) -> JsonObject:
    """A chunk that OpenAI could send, with one choice or none."""
    choices = [] if choice is None else [{"index": 0, "finish_reason": None, **choice}]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    built = {**head, "choices": choices, **more}
    ChatCompletionChunk.model_validate(built, strict=True)
    return built


def said(finish: str | None = None, **delta: Any) -> JsonObject:
    """A chunk with a delta."""
    return chunk({"delta": delta, "finish_reason": finish})


def completion(message: JsonObject, finish: str, **more: Any) -> JsonObject:
    """A whole answer."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    built = {**head, "choices": [choice], **more}
    ChatCompletion.model_validate(built, strict=True)
    return built


def event(kind: str, **fields: Any) -> JsonObject:
    """An event of the responses API that OpenAI could send."""
    built = {"type": kind, "sequence_number": 1, **fields}
    _adapter(ResponseStreamEvent).validate_python([built])
    return built


def response(status: str, output: list[JsonObject], **fields: Any) -> JsonObject:
    """The response object at the end of a stream."""
    built: JsonObject = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **fields,
    }
    Response.model_validate(built)
    return built
