"""Requests of the Messages API: lenient, unknown fields are ignored."""

from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, PlainValidator, Strict

from shepherd.messages import JsonObject
from shepherd.sampling import MAX_STOP_STRINGS
from shepherd.server.anthropic.blocks import Block, block_of, blocks_or_text, system_text
from shepherd.server.body import RequestModel
from shepherd.server.wire.fields import (
    Events,
    ModelName,
    NotServed,
    OwnControls,
    Tools,
    few_messages,
    in_range,
)


def _without_empty(value: object) -> object:
    """A list without empty strings."""
    if isinstance(value, list):
        return [item for item in cast(list[object], value) if item]
    return value


class WireMessage(RequestModel):
    """A message; one of the role `system` holds from its place on."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[
        list[Annotated[Block, PlainValidator(block_of)]],
        Field(fail_fast=True),
        BeforeValidator(blocks_or_text),
    ]


class WireTool(RequestModel):
    """A tool: the client's own, or by its type one that Anthropic defines."""

    type: str | None = None
    name: Annotated[str, Field(max_length=256)] = ""
    description: str | None = None
    input_schema: JsonObject | None = None


class WireToolChoice(RequestModel):
    """Which calls the answer must be."""

    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class WireThinking(RequestModel):
    """Whether the model reasons, and whether the answer shows it."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int | None, Field(ge=0, strict=True)] = None
    display: Literal["summarized", "omitted"] | None = None


class WireFormat(RequestModel):
    """A format that the answer must fit."""

    type: Literal["json_schema"]
    schema_: Annotated[JsonObject, Field(alias="schema")]


class OutputConfig(RequestModel):
    """The effort of the model, and the format of its answer."""

    effort: str | None = None
    format: WireFormat | None = None


class PromptRequest(OwnControls):
    """All of a request but its limit of generated tokens."""

    model: ModelName = None
    messages: Annotated[
        list[WireMessage], Field(min_length=1, fail_fast=True), BeforeValidator(few_messages)
    ]
    """The conversation: text, images in base64, documents as text, calls and their results, and
    reasoning with the signature that came with it. A message may have the role `system`.
    """
    system: Annotated[str, PlainValidator(system_text)] = ""
    """The system prompt: a text or text blocks."""
    tools: Tools[WireTool] = Field(default_factory=list[WireTool])
    """Tools on offer. Those that Anthropic's servers run are left out."""
    tool_choice: WireToolChoice | None = None
    """`auto`; `any`: the answer is calls; `tool`: one call of the tool `name`; `none`: the tools
    are not offered. `disable_parallel_tool_use`: at most one call.
    """
    thinking: WireThinking | None = None
    """`enabled` and `adaptive`: the model reasons; `disabled` and `between_tools`: it does not.
    `budget_tokens` limits the reasoning. With `display: omitted` the answer keeps the reasoning in
    the signature alone.
    """
    output_config: OutputConfig | None = None
    """`format`: JSON that fits a schema; `effort`: how much it reasons."""
    output_format: WireFormat | None = None
    """The older place of `output_config.format`."""
    mcp_servers: NotServed = None
    container: NotServed = None
    thread: Any = None
    """Not served: send the whole conversation. Clients then do."""
    compaction: NotServed = None
    stream: Events = None
    stop_sequences: Annotated[
        Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None,
        BeforeValidator(_without_empty),
        Field(
            description=f"Up to {MAX_STOP_STRINGS} texts that end the answer; it names the one "
            "that did."
        ),
    ] = None
    temperature: Annotated[float | None, in_range("temperature"), Strict()] = None
    """Randomness; 0: the likeliest token."""
    top_p: Annotated[float | None, in_range("top_p"), Strict()] = None
    """Keep the likeliest tokens up to this probability."""
    top_k: Annotated[int | None, in_range("top_k"), Strict()] = None
    """Keep the K likeliest tokens; 0: all."""
    context_management: Any = None
    """Accepted; no edit is applied, and the answer says so."""


class CountRequest(PromptRequest):
    """The body of `POST /v1/messages/count_tokens`, which is checked as a message is."""

    max_tokens: Annotated[int | None, Field(ge=0, strict=True)] = None
    """Accepted: it changes no count."""


class MessagesRequest(PromptRequest):
    """The body of `POST /v1/messages`."""

    max_tokens: Annotated[int, Field(ge=0, strict=True)]
    """Tokens to generate at most. 0: the prompt goes into the cache, and the answer is empty."""
