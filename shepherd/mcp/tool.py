"""A server's tool as one of the model's: its name, its schema, its call and its result."""

import asyncio
import binascii
import hashlib
import json
import os
import re
from base64 import b64decode
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace
from pydantic import ConfigDict, ValidationError, model_validator

from shepherd.errors import ImageError, ToolError
from shepherd.events import Notice, Topic
from shepherd.images import MAX_IMAGES, Image, decode_image
from shepherd.json_text import as_list, as_object, as_text, referenced
from shepherd.messages import JsonObject, ToolSpec
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.text import cap_text, new_spill_file, plain_text, reveal, valid_json, valid_text
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from shepherd.mcp.connection import Connection


MAX_SCHEMA_BYTES = 16_384
"""A longer schema is reduced to the names and types of its properties."""
_MAX_DEPTH = 12
_MAX_DESCRIPTION = 300
_MAX_PROBLEM = 300
_KEPT = frozenset(
    {"type", "enum", "const", "required", "minimum", "maximum", "minItems", "maxItems",
     "minLength", "maxLength"}
)  # fmt: skip
_ALTERNATIVES = ("anyOf", "oneOf")


def model_schema(schema: JsonObject) -> JsonObject:
    """The schema as a model sees it: an object, without references and unusual keywords.

    Regular expressions, formats, examples and defaults are left out: the server checks them.
    """
    result = _Reduction(schema).reduced(schema, depth=0)
    properties = as_object(result.get("properties"))
    required = [name for name in as_list(result.get("required")) if name in properties]
    whole: JsonObject = {"type": "object", "properties": properties}
    if required:
        whole["required"] = required
    if len(json.dumps(whole)) <= MAX_SCHEMA_BYTES:
        return whole
    whole["properties"] = {name: _only_type(part) for name, part in properties.items()}
    if len(json.dumps(whole)) <= MAX_SCHEMA_BYTES:
        return whole
    return {"type": "object", "properties": {}}


def _only_type(part: JsonObject) -> JsonObject:
    return {"type": part["type"]} if isinstance(part.get("type"), str) else {}


class _Reduction:
    """Reduces the parts of one schema; local references are resolved."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._parts_left = 2000
        """More parts allow everything: references can make a small schema endless."""

    def reduced(self, node: object, depth: int) -> JsonObject:
        """The reduced part; one that is too deep, or one of too many, allows everything."""
        self._parts_left -= 1
        part = as_object(node)
        if depth > _MAX_DEPTH or self._parts_left < 0:
            return {}
        if isinstance(reference := part.get("$ref"), str):
            return self.reduced(referenced(self._root, reference), depth + 1)
        result: JsonObject = {key: value for key, value in part.items() if key in _KEPT}
        if description := as_text(part.get("description")).split():
            result["description"] = " ".join(description)[:_MAX_DESCRIPTION]
        self._add_nested(part, result, depth + 1)
        return result

    def _add_nested(self, part: JsonObject, result: JsonObject, depth: int) -> None:
        """Add to `result` what `part` says of properties, items and alternatives."""
        if isinstance(part.get("properties"), dict):
            named = as_object(part["properties"]).items()
            result["properties"] = {str(name): self.reduced(node, depth) for name, node in named}
        if isinstance(part.get("items"), dict):
            result["items"] = self.reduced(part["items"], depth)
        for key in _ALTERNATIVES:
            if isinstance(part.get(key), list):
                options = [self.reduced(option, depth) for option in as_list(part[key])]
                result["anyOf"] = [option for option in options if option] or [{}]
        all_of = as_list(part.get("allOf"))
        if len(all_of) == 1:  # how generators write a reference with a description
            result |= self.reduced(all_of[0], depth)
        if isinstance(part.get("additionalProperties"), bool):
            result["additionalProperties"] = part["additionalProperties"]


class JsonArguments(Arguments):
    """Arguments of a server's tool; a subclass for each tool has the schema that checks them."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)
    checked_schema: ClassVar[JsonObject] = {}

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: object) -> object:
        """The arguments of the model; raises ValueError for those that the schema forbids."""
        if not isinstance(data, dict):  # pydantic says what is wrong
            return data
        values = _without_null(cast(JsonObject, data), cls.checked_schema)
        if problem := _problem(values, cls.checked_schema):
            raise ValueError(problem)
        return values

    @cached_property
    def values(self) -> JsonObject:
        """The arguments as they are sent."""
        return dict(self.model_extra or {})


def arguments_model(name: str, schema: JsonObject) -> type[JsonArguments]:
    """The arguments of a tool with this reduced schema."""
    return type(f"{name}_arguments", (JsonArguments,), {"checked_schema": schema, "__doc__": None})


def _without_null(values: JsonObject, schema: JsonObject) -> JsonObject:
    """The arguments without null for optional ones: small models send it for omitted ones."""
    properties, required = as_object(schema.get("properties")), as_list(schema.get("required"))
    return {
        name: value
        for name, value in values.items()
        if value is not None or name in required or not _problem(None, properties.get(name, {}))
    }


def _problem(values: object, schema: JsonObject) -> str:
    """The first problem of the arguments in a sentence, "" if there is none."""
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.exceptions import SchemaError
    from referencing import Registry

    validator: Any = Draft202012Validator(schema, registry=Registry())
    try:
        errors = cast(Iterable[ValidationError], validator.iter_errors(values))
        error = next(iter(errors), None)
    except (SchemaError, TypeError, ValueError, RecursionError, AttributeError):
        return ""  # a broken schema; the server checks the arguments itself
    if error is None:
        return ""
    place = ".".join(str(step) for step in error.absolute_path)
    lead = f"{place}: " if place else ""
    return (lead + error.message)[:_MAX_PROBLEM]


MAX_NAME = 64
"""The longest name that the APIs of all providers take."""

_OTHER = re.compile(r"[^A-Za-z0-9_]+")
_NOT_IN_TARGET = re.compile(r"[^A-Za-z0-9_.-]+")
_HASH = 6


def tool_names(server: str, tools: Sequence[str]) -> list[str]:
    """`SERVER__TOOL` for each tool, valid for all APIs and each different."""
    result: list[str] = []
    for tool in tools:
        name = f"{_OTHER.sub('_', server)}__{_OTHER.sub('_', tool)}"
        if len(name) > MAX_NAME or name in result:
            name = f"{name[: MAX_NAME - _HASH - 1]}_{_hash(tool)}"
        result.append(name)
    return result


def access_target(server: str, tool: str) -> str:
    """`SERVER/TOOL` as rules read it: without characters that have a meaning in patterns."""
    name = _NOT_IN_TARGET.sub("_", tool)
    if name != tool:  # else a rule for one tool would allow another one of the same server
        name = f"{name}_{_hash(tool)}"
    return f"{server}/{name}"


def _hash(text: str) -> str:
    """A few digits that keep shortened or changed names apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]


Block = types.ContentBlock | types.TextResourceContents | types.BlobResourceContents


def tool_result(result: types.CallToolResult, limit: int, spill_dir: Path) -> ToolResult:
    """The result of a call, in about `limit` bytes; the rest of it goes to files."""
    text, images = content(result.content, spill_dir)
    structured = result.structured_content
    if structured is not None and not _is_repeated_in(result.content, structured):
        text = "\n".join(filter(None, [text, json.dumps(structured, ensure_ascii=False)]))
    capped = cap_text(text or "(no output)", limit, spill_dir)
    if result.is_error:
        return ToolResult(f"Error: {capped}", ok=False, images=images)
    return ToolResult(capped, images=images)


def content(blocks: Iterable[Block], spill_dir: Path) -> tuple[str, tuple[Image, ...]]:
    """The text and the images of content; other data is kept in files, which the text names."""
    texts: list[str] = []
    images: list[Image] = []
    for block in blocks:
        if isinstance(block, types.ImageContent) and len(images) < MAX_IMAGES:
            try:
                images.append(decode_image(block.data))
            except ImageError as error:
                texts.append(f"[an image that can't be used: {error}]")
        else:
            texts.append(_text(block, spill_dir))
    return "\n".join(texts), tuple(images)


def _text(block: Block, spill_dir: Path) -> str:
    """A block of content as text for the model; binary data goes to a file in `spill_dir`."""
    match block:
        case types.TextContent():
            return plain_text(block.text)
        case types.EmbeddedResource():
            return _text(block.resource, spill_dir)
        case types.TextResourceContents():
            return plain_text(f"[resource {block.uri}]\n{block.text}")
        case types.BlobResourceContents():
            return _saved(f"resource {block.uri}", block.blob, block.mime_type, spill_dir)
        case types.ResourceLink():
            about = f": {block.description}" if block.description else ""
            return plain_text(f"[link to the resource {block.uri} ({block.name}){about}]")
        case types.ImageContent():
            return _saved("image", block.data, block.mime_type, spill_dir)
        case types.AudioContent():
            return _saved("audio", block.data, block.mime_type, spill_dir)
    return "[content of an unknown type]"


def _saved(noun: str, data: str, media_type: str | None, spill_dir: Path) -> str:
    """Save binary data (base64) in a file; the line that says where."""
    try:
        raw = b64decode(data)
    except (binascii.Error, ValueError):
        return plain_text(f"[{noun}: not valid base64]")
    descriptor, path = new_spill_file(spill_dir)
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
    about = plain_text(f"{noun}, {media_type or 'binary'}")
    return f"[{about}, {len(raw)} bytes, kept in {path}]"


def _is_repeated_in(blocks: Sequence[types.ContentBlock], structured: object) -> bool:
    """Whether the text of a result is the structured content once more, as servers do.

    The structured content may also wrap that text: `{"result": ...}`, `{"content": ...}`.
    """
    same_values = [structured]
    if len(as_object(structured)) == 1:
        same_values += as_object(structured).values()
    texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
    for text in (*texts, "".join(texts)):
        try:
            value: object = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        if value in same_values:
            return True
    return False


MAX_DESCRIPTION = 1024
"""The maximum length of a description in characters."""

_NO_LIMIT = 86_400.0
"""Seconds of the SDK's own limit, which would count the time for answers of the user."""
_HINTS = {
    "read_only_hint": "only reads",
    "destructive_hint": "may destroy",
    "idempotent_hint": "can be repeated",
    "open_world_hint": "reaches other systems",
}


class ServerTool(Tool[JsonArguments]):
    """A tool of an MCP server; each call needs approval, unless a rule allows it."""

    is_extension = True

    def __init__(self, connection: "Connection", tool: types.Tool, name: str) -> None:
        self.name = name
        self.description = valid_text(_description(tool))
        self.target = access_target(connection.server.name, tool.name)
        self._connection = connection
        self._tool = tool
        schema = model_schema(valid_json(tool.input_schema))
        self.arguments = arguments_model(name, schema)

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.arguments.checked_schema)

    def accesses(self, arguments: JsonArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.MCP, self.target)]

    def preview(self, arguments: JsonArguments, context: ToolContext) -> str:
        server = self._connection.server
        place = server.definition.url or server.definition.command
        lines = [f"Tool {self._tool.name} of the MCP server {server.name} ({place})"]
        if claims := _claims(self._tool.annotations):
            lines.append(f"The server claims, unproven: it {claims}")
        return "\n".join(lines)

    def deadline(self, arguments: JsonArguments, context: ToolContext) -> float | None:
        return None  # `run` has the server's own

    async def run(self, arguments: JsonArguments, context: ToolContext) -> ToolResult:
        server = self._connection.server

        async def report(progress: float, total: float | None, message: str | None) -> None:
            """Show "3/10 copying", say; the server may send no total, and no message."""
            share = f"{progress:g}" + (f"/{total:g}" if total else "")
            text = " ".join(filter(None, [share, reveal(message or "")[:200]]))
            context.on_event(Notice(text, Topic.PROGRESS))

        client = await self._connection.client()
        seconds = server.definition.timeout
        try:
            async with self._connection.questions.during(context, seconds):
                result = await client.call_tool(
                    self._tool.name,
                    arguments.values,
                    read_timeout_seconds=_NO_LIMIT,
                    progress_callback=report,
                )
        except TimeoutError:
            raise ToolError(
                f"the MCP server {server.name} did not answer in {seconds:g} s"
            ) from None
        except MCPError as error:
            reason = plain_text(self._connection.reason(error) or str(error))
            raise ToolError(f"the MCP server {server.name} refuses: {reason}") from error
        except (ValidationError, RuntimeError) as error:
            raise ToolError(f"the answer of the MCP server {server.name} is not valid") from error
        return await asyncio.to_thread(self._presented, result, context)

    def _presented(self, result: types.CallToolResult, context: ToolContext) -> ToolResult:
        """The result, in which the server's secrets are replaced by their names."""
        presented = tool_result(result, context.output_bytes, context.spill_dir)
        text = presented.content
        for name, secret in self._connection.secrets().items():
            text = text.replace(secret, f"[{name}]")
        return replace(presented, content=text)


def server_tools(connection: "Connection") -> list[ServerTool]:
    """The tools that a server offers now."""
    tools = connection.catalogue.tools
    names = tool_names(connection.server.name, [tool.name for tool in tools])
    return [ServerTool(connection, tool, name) for tool, name in zip(tools, names, strict=True)]


def _description(tool: types.Tool) -> str:
    text = " ".join(plain_text(tool.description or tool.title or tool.name).split())
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1] + "…"


def _claims(annotations: types.ToolAnnotations | None) -> str:
    """The annotations of a server, in words."""
    return ", ".join(text for name, text in _HINTS.items() if getattr(annotations, name, None))
