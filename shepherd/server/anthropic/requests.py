"""Requests of the Messages API: lenient, unknown fields are ignored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

from msgspec import Struct
from pydantic import BeforeValidator, Field, PlainValidator, Strict

from shepherd.images import check_count, decode_image
from shepherd.messages import JsonObject, ToolCall
from shepherd.sampling import MAX_STOP_STRINGS
from shepherd.server.body import RequestModel
from shepherd.server.wire import fields
from shepherd.server.wire.content import Content, arguments_object


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
    block = cast(JsonObject, value)
    kind: object = block.get("type")
    if not isinstance(kind, str):
        raise ValueError("a content block needs its type")
    parser = _PARSERS.get(kind)
    if parser is not None:
        return parser(block)
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
    texts: list[str] = []
    for block in cast(list[object], blocks):
        text = block_of(block)
        if not isinstance(text, str):
            raise ValueError("only text blocks are supported here")
        if text.startswith(_BILLING):
            _, _, text = text.partition("\n")
        texts.append(text)
    return "\n\n".join(text for text in texts if text)


def _image(block: JsonObject) -> Content:
    """The image of a block, which comes in base64 or in a `data:` URL."""
    source = _source(block)
    kind = source.get("type")
    if kind == "base64":
        return Content(images=(decode_image(_string(source, "data")),))
    if kind == "url" and _string(source, "url")[:5].lower() == "data:":
        return Content(images=(decode_image(source["url"]),))
    raise ValueError(
        f"images by {kind!r} are not supported: this server fetches nothing, so send the image "
        "itself in base64"
    )


def _document(block: JsonObject) -> Content:
    """A document's title, what is said about it, and its text and images."""
    source = _source(block)
    kind = source.get("type")
    if kind == "text":
        content = Content(_string(source, "data"))
    elif kind == "content":
        content = content_of(source.get("content"))
    else:
        raise ValueError(f"documents by {kind!r} are not supported; send their text")
    lines = [block.get("title"), block.get("context"), content.text]
    text = "\n".join(line for line in lines if isinstance(line, str) and line)
    return Content(text, content.images)


def _search_result(block: JsonObject) -> Content:
    """A result of a search by the client: its title, where it is from, and its content."""
    content = content_of(block.get("content"))
    lines = (_string(block, "title"), _string(block, "source"), content.text)
    return Content("\n".join(line for line in lines if line), content.images)


def _tool_reference(block: JsonObject) -> Content:
    """What a search of tools has found, in words."""
    return Content(f"The tool {_string(block, 'tool_name')} is available.")


def _call(block: JsonObject) -> ToolCall:
    """The call in a `tool_use` block."""
    name = _string(block, "name")
    if not name:
        raise ValueError("a tool_use block needs a name")
    return ToolCall(_string(block, "id"), name, arguments_object(block.get("input")))


def _result(block: JsonObject) -> Result:
    """The result in a `tool_result` block."""
    call_id = _string(block, "tool_use_id")
    content = content_of(block.get("content"))
    return Result(call_id, content, failed=block.get("is_error") is True)


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
    """One block of nested content; raises ValueError for a call, a result or reasoning."""
    block = block_of(value)
    if isinstance(block, Content):
        return block
    if isinstance(block, str):
        return Content(block)
    raise ValueError(f"content of type {cast(JsonObject, value)['type']!r} is not supported here")


def _source(block: JsonObject) -> JsonObject:
    """The object that says where an image or a document is; raises ValueError without one."""
    source: object = block.get("source")
    if not isinstance(source, dict):
        raise ValueError(f"content of type {block['type']!r} needs a source")
    return cast(JsonObject, source)


def _string(block: JsonObject, key: str) -> str:
    """The text in a field of a block, also an empty one; raises ValueError for anything else."""
    value: object = block.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{block.get('type', 'the block')}: {key} must be a string")
    return value


_BILLING = "x-anthropic-billing-header:"
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_PARSERS: Mapping[str, Callable[[JsonObject], Block]] = {
    "text": lambda block: _string(block, "text"),
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "tool_reference": _tool_reference,
    "compaction": lambda block: _string(block, "content"),
    "tool_use": _call,
    "tool_result": _result,
    "thinking": lambda block: Thinking(_string(block, "thinking"), _string(block, "signature")),
    "redacted_thinking": lambda block: Redacted(_string(block, "data")),
}


def _without_empty(value: object) -> object:
    """A list of stop strings without empty ones and null, which clients send for none."""
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
    display: Annotated[
        Literal["summarized", "omitted"] | None, fields.as_nearest("summarized", "omitted")
    ] = None


class WireFormat(RequestModel):
    """A format that the answer must fit."""

    type: Literal["json_schema"]
    schema_: Annotated[JsonObject, Field(alias="schema")]


class OutputConfig(RequestModel):
    """The effort of the model, and the format of its answer."""

    effort: str | None = None
    format: WireFormat | None = None


class PromptRequest(fields.OwnControls):
    """All of a request but its limit of generated tokens."""

    refused: ClassVar = {
        "container": "Code does not run here.",
        "compaction": "Ask for a summary.",
    }

    model: fields.ModelName = None
    messages: Annotated[
        list[WireMessage], Field(min_length=1, fail_fast=True), BeforeValidator(fields.few_messages)
    ]
    """The conversation: text, images in base64, documents as text, calls and their results, and
    reasoning with the signature that came with it. A message may have the role `system`.
    """
    system: Annotated[str, PlainValidator(system_text)] = ""
    """The system prompt: a text or text blocks."""
    tools: fields.Tools[WireTool] = Field(default_factory=list[WireTool])
    """Tools on offer. Those that Anthropic's servers run are left out, and a header of the answer
    names them.
    """
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
    mcp_servers: Any = None
    """Left out, as other tools that Anthropic's servers run."""
    container: fields.NotServed = None
    thread: Any = None
    """Not served: send the whole conversation. Clients then do."""
    compaction: fields.NotServed = None
    stream: fields.Events = None
    stop_sequences: Annotated[
        Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None,
        BeforeValidator(_without_empty),
        Field(
            description=f"Up to {MAX_STOP_STRINGS} texts that end the answer; it names the one "
            "that did."
        ),
    ] = None
    temperature: Annotated[float | None, fields.in_range("temperature"), Strict()] = None
    """Randomness; 0: the likeliest token."""
    top_p: Annotated[float | None, fields.in_range("top_p"), Strict()] = None
    """Keep the likeliest tokens up to this probability."""
    top_k: Annotated[int | None, fields.in_range("top_k"), Strict()] = None
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
