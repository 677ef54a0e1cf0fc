"""Requests of the Messages API: lenient, unknown fields are ignored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, cast

from msgspec import Struct
from pydantic import BeforeValidator, Field, PlainValidator, Strict

from shepherd.images import check_count, decode_image
from shepherd.messages import JsonObject, ToolCall
from shepherd.sampling import MAX_STOP_STRINGS
from shepherd.server.body import RequestModel
from shepherd.server.wire.content import Content, arguments_object
from shepherd.server.wire.fields import (
    Events,
    ModelName,
    NotServed,
    OwnControls,
    Tools,
    few_messages,
    in_range,
)


class Result(Struct, frozen=True):
    """A `tool_result` block; `failed` is its `is_error`."""

    call_id: str
    content: Content
    failed: bool = False


class Thinking(Struct, frozen=True):
    """A `thinking` block, whose signature was not checked yet."""

    text: str
    signature: str


@dataclass(frozen=True, slots=True)
class Redacted:
    """A `redacted_thinking` block."""

    data: str = field(repr=False)


class ServerToolBlock(Struct, frozen=True):
    """A block of a tool that Anthropic's servers run: a call or a result."""

    type: str


Block: TypeAlias = str | Content | ToolCall | Result | Thinking | Redacted | ServerToolBlock
"""A block of a message; a string is a text block, `Content` an image or a document."""


def block_of(value: object) -> Block:
    """A block of a request's JSON; raises ValueError for one that is not supported."""
    if not isinstance(value, dict):
        raise ValueError("a content block must be an object with a type")
    fields = cast(JsonObject, value)
    kind: object = fields.get("type")
    if not isinstance(kind, str):
        raise ValueError("a content block needs its type")
    parser = _PARSERS.get(kind)
    if parser is not None:
        return parser(fields)
    if kind in _SERVER_CALLS or kind.endswith("_tool_result"):
        return ServerToolBlock(kind)
    raise ValueError(f"content of type {kind!r} is not supported")


def blocks_or_text(content: object) -> object:
    """The blocks of a message's content; a string is one text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def system_text(value: object) -> str:
    """The system prompt of a string or of text blocks; raises ValueError.

    Claude Code's billing line, which differs in every session, is left out: it would change the
    start of the prompt, which could then never come from the cache.
    """
    blocks = blocks_or_text("" if value is None else value)
    if not isinstance(blocks, list):
        raise ValueError("must be a string or a list of text blocks")
    texts = [block_of(block) for block in cast(list[object], blocks)]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("only text blocks are supported here")
    lines = [
        text.partition("\n")[2] if text.startswith(_BILLING) else text
        for text in cast(list[str], texts)
    ]
    return "\n\n".join(text for text in lines if text)


def _image(fields: JsonObject) -> Content:
    source = _source(fields)
    kind = source.get("type")
    if kind == "base64":
        return Content(images=(decode_image(_string(source, "data")),))
    if kind == "url" and _string(source, "url")[:5].lower() == "data:":
        return Content(images=(decode_image(source["url"]),))
    raise ValueError(
        f"images by {kind!r} are not supported: this server fetches nothing, so send the image "
        "itself in base64"
    )


def _document(fields: JsonObject) -> Content:
    source = _source(fields)
    kind = source.get("type")
    if kind == "text":
        content = Content(_string(source, "data"))
    elif kind == "content":
        content = content_of(source.get("content"))
    else:
        raise ValueError(f"documents by {kind!r} are not supported; send their text")
    head = [text for key in ("title", "context") if isinstance(text := fields.get(key), str)]
    return Content("\n".join(text for text in (*head, content.text) if text), content.images)


def _search_result(fields: JsonObject) -> Content:
    content = content_of(fields.get("content"))
    lines = (_string(fields, "title"), _string(fields, "source"), content.text)
    return Content("\n".join(line for line in lines if line), content.images)


def _tool_reference(fields: JsonObject) -> Content:
    return Content(f"The tool {_string(fields, 'tool_name')} is available.")


def _call(fields: JsonObject) -> ToolCall:
    name = _string(fields, "name")
    if not name:
        raise ValueError("a tool_use block needs a name")
    return ToolCall(_string(fields, "id"), name, arguments_object(fields.get("input")))


def _result(fields: JsonObject) -> Result:
    call_id = _string(fields, "tool_use_id")
    content = content_of(fields.get("content"))
    return Result(call_id, content, failed=fields.get("is_error") is True)


def content_of(value: object) -> Content:
    """The text and images of nested content: a string or a list of blocks; raises ValueError."""
    if value is None:
        return Content()
    blocks = blocks_or_text(value)
    if not isinstance(blocks, list):
        raise ValueError("content must be a string or a list of blocks")
    return joined([_part(block) for block in cast(list[object], blocks)])


def joined(parts: Sequence[Content]) -> Content:
    """The contents as one, its texts joined by newlines; raises ValueError for many images."""
    images = tuple(image for part in parts for image in part.images)
    check_count(images)
    return Content("\n".join(part.text for part in parts if part.text), images)


def _part(value: object) -> Content:
    block = block_of(value)
    if isinstance(block, Content):
        return block
    if isinstance(block, str):
        return Content(block)
    raise ValueError(f"content of type {cast(JsonObject, value)['type']!r} is not supported here")


def _source(fields: JsonObject) -> JsonObject:
    source: object = fields.get("source")
    if not isinstance(source, dict):
        raise ValueError(f"content of type {fields['type']!r} needs a source")
    return cast(JsonObject, source)


def _string(fields: JsonObject, key: str) -> str:
    value: object = fields.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{fields.get('type', 'the block')}: {key} must be a string")
    return value


_BILLING = "x-anthropic-billing-header:"
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_PARSERS: Mapping[str, Callable[[JsonObject], Block]] = {
    "text": lambda fields: _string(fields, "text"),
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "tool_reference": _tool_reference,
    "compaction": lambda fields: _string(fields, "content"),
    "tool_use": _call,
    "tool_result": _result,
    "thinking": lambda fields: Thinking(_string(fields, "thinking"), _string(fields, "signature")),
    "redacted_thinking": lambda fields: Redacted(_string(fields, "data")),
}


def _without_empty(value: object) -> object:
    """A list without empty strings, and without null."""
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
