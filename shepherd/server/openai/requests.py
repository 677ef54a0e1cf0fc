"""Requests of the chat completions API: lenient, unknown fields are ignored."""

from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    model_validator,
)

from shepherd.messages import JsonObject
from shepherd.server.body import RequestModel
from shepherd.server.wire.content import Content, arguments_object, content_of
from shepherd.server.wire.sampling import SamplingFields

MAX_MESSAGES = 10_000
MAX_TOOLS = 1000


def _few_messages(value: object) -> object:
    """Count before each message is looked at."""
    if isinstance(value, list) and len(cast(list[object], value)) > MAX_MESSAGES:
        raise ValueError(f"must be at most {MAX_MESSAGES:,} messages")
    return cast(object, value)


def _list_or_empty(value: object) -> object:
    return [] if value is None else value


def _token_limit(value: int | None) -> int | None:
    if value == 0:
        raise ValueError("must be at least 1, or -1 for as many as fit")
    return value


TokenLimit = Annotated[int | None, Field(ge=-1), AfterValidator(_token_limit)]


class WireFunctionCall(RequestModel):
    """The function of a replayed call; its arguments come as JSON text or as an object."""

    name: Annotated[str, Field(min_length=1)]
    arguments: Annotated[JsonObject, BeforeValidator(arguments_object)] = Field(
        default_factory=dict[str, Any]
    )


class WireToolCall(RequestModel):
    """A call in the history."""

    id: str | None = None
    function: WireFunctionCall


class WireMessage(RequestModel):
    """A message of any role."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[Content, PlainValidator(content_of)] = Content()
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Annotated[
        list[WireToolCall], Field(fail_fast=True), BeforeValidator(_list_or_empty)
    ] = Field(default_factory=list[WireToolCall])
    tool_call_id: str | None = None
    name: str | None = None


class WireFunction(RequestModel):
    """A function on offer; `parameters` is a JSON schema."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: JsonObject | None = None


class WireTool(RequestModel):
    """A tool on offer; the function's fields may also stand beside the type."""

    type: Literal["function"] = "function"
    function: WireFunction

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, value: object) -> object:
        if isinstance(value, dict) and "function" not in value and "name" in value:
            fields = cast(JsonObject, value)
            return {"type": fields.get("type", "function"), "function": fields}
        return cast(object, value)


class StreamOptions(RequestModel):
    """Extra parts of a stream."""

    include_usage: Annotated[
        bool | None, Field(description="One last chunk, without choices, with the usage.")
    ] = None


class TemplateOptions(RequestModel):
    """Options for the chat template."""

    enable_thinking: Annotated[bool | None, Field(description="Whether the model reasons.")] = None


class ChatRequest(SamplingFields):
    """The body of `POST /v1/chat/completions`."""

    model: Annotated[
        str | None, Field(description="Any name: the loaded model answers, under its own.")
    ] = None
    messages: Annotated[
        list[WireMessage],
        Field(
            min_length=1,
            fail_fast=True,
            description="The conversation; system messages are merged, images are `data:` URLs.",
        ),
        BeforeValidator(_few_messages),
    ]
    tools: Annotated[
        list[WireTool],
        Field(max_length=MAX_TOOLS, fail_fast=True, description="Functions on offer."),
        BeforeValidator(_list_or_empty),
    ] = Field(default_factory=list[WireTool])
    tool_choice: Annotated[
        Any,
        Field(
            description="`auto`; `none`: the tools are not offered; `required`: the answer is "
            "calls; a function's name: it is one call of it."
        ),
    ] = None
    parallel_tool_calls: Annotated[
        bool | None, Field(description="false: at most one call in an answer.")
    ] = None
    stream: Annotated[bool | None, Field(description="Answer in server-sent events.")] = None
    stream_options: Annotated[
        StreamOptions | None,
        Field(description="`include_usage`: a stream ends with a chunk that has the usage."),
    ] = None
    max_completion_tokens: Annotated[
        TokenLimit, Field(description="Tokens to generate at most; none or -1: as many as fit.")
    ] = None
    max_tokens: Annotated[TokenLimit, Field(description="The older name of the same.")] = None
    reasoning_effort: Annotated[
        str | None, Field(description="`none`: the model does not reason; anything else: it does.")
    ] = None
    chat_template_kwargs: Annotated[
        TemplateOptions | None,
        Field(description="`enable_thinking`: whether the model reasons; outweighs the effort."),
    ] = None
    n: Annotated[
        int | None,
        Field(ge=1, description="Answers to give, each with its own seed; `server.max_choices`."),
    ] = None
    response_format: Annotated[
        Any,
        Field(
            description="`text`; `json_object`: any JSON object; `json_schema`: JSON that fits the "
            "schema, with `strict` refused if a part of it can't be enforced."
        ),
    ] = None
    grammar: Annotated[
        str | None, Field(description="A grammar in llama.cpp's GBNF that the answer fits.")
    ] = None
    functions: Annotated[Any, Field(description="Not served; use `tools`.")] = None
    function_call: Annotated[Any, Field(description="Not served; use `tool_choice`.")] = None
    modalities: Annotated[Any, Field(description='Only `["text"]`.')] = None
