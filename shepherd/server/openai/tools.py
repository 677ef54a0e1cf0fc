"""Tools, calls and the tool choice of the chat completions API."""

from collections.abc import Sequence
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Field, model_validator

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid
from shepherd.server.wire.tools import (
    CustomFormat,
    ToolName,
    WireFunction,
    WireFunctionCall,
    check_custom_format,
    custom_arguments,
    custom_spec,
)
from shepherd.session import ToolChoice

_KINDS = ("function", "custom")


class WireCustomCall(RequestModel):
    """The custom tool of a replayed call, and the text that the model sent to it."""

    name: Annotated[str, Field(min_length=1)]
    input: str = ""


class WireToolCall(RequestModel):
    """A call in the history: of a function or of a custom tool."""

    id: str | None = None
    function: WireFunctionCall | None = None
    custom: WireCustomCall | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "WireToolCall":
        if (self.function is None) is (self.custom is None):
            raise ValueError("a call needs either 'function' or 'custom'")
        return self

    def to_call(self, default_id: str) -> ToolCall:
        """The call; it gets `default_id` if it has no id."""
        call_id = self.id or default_id
        if self.custom is not None:
            return ToolCall(call_id, self.custom.name, custom_arguments(self.custom.input))
        function = self.function or WireFunctionCall(name="?")
        return ToolCall(call_id, function.name, function.arguments)


def _flat_format(value: object) -> object:
    """A grammar stands in an object of its own in this API, and beside the type in others."""
    fields = cast(JsonObject, value) if isinstance(value, dict) else {}
    grammar = fields.get("grammar")
    if not isinstance(grammar, dict):
        return cast(object, value)
    return {**fields, **cast(JsonObject, grammar)}


class WireCustom(RequestModel):
    """A custom tool on offer, whose input is text."""

    name: ToolName
    description: str | None = None
    format: Annotated[CustomFormat | None, BeforeValidator(_flat_format)] = None


class WireTool(RequestModel):
    """A tool on offer; the fields of a function or custom tool may also stand beside the type."""

    type: Literal["function", "custom"] = "function"
    function: WireFunction | None = None
    custom: WireCustom | None = None

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, value: object) -> object:
        fields = cast(JsonObject, value) if isinstance(value, dict) else {}
        kind = fields.get("type", "function")
        if "name" in fields and kind in _KINDS and kind not in fields:
            return {"type": kind, kind: fields}
        return cast(object, value)

    @model_validator(mode="after")
    def _matching(self) -> "WireTool":
        if (self.custom if self.type == "custom" else self.function) is None:
            raise ValueError(f"a tool of type {self.type!r} needs {self.type!r}")
        return self

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.to_spec().name

    def to_spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        if self.custom is not None and self.type == "custom":
            custom = self.custom
            return custom_spec(custom.name, custom.description or "", custom.format)
        return (self.function or WireFunction(name="?")).to_spec()


def check_tools(tools: Sequence[WireTool], model: ModelInfo) -> None:
    """Raise ApiError for a grammar of a custom tool that can't be enforced with this model."""
    for index, tool in enumerate(tools):
        if tool.custom is not None and tool.type == "custom":
            check_custom_format(tool.custom.format, model, f"tools.{index}.custom.format")


def custom_names(tools: Sequence[WireTool]) -> frozenset[str]:
    """The names of the custom tools."""
    return frozenset(tool.name for tool in tools if tool.type == "custom")


def offered_tools(tools: Sequence[WireTool], choice: object) -> list[ToolSpec]:
    """The tools that the model sees: none with `none`, only the allowed ones with `allowed_tools`.

    Raises ApiError for an allowed tool that is not among `tools`.
    """
    if choice == "none":
        return []
    allowed = _allowed_tools(choice)
    if allowed is None:
        return [tool.to_spec() for tool in tools]
    names = [_tool_name(tool) for tool in cast(list[object], allowed.get("tools"))]
    for name in names:
        _check_offered(name, tools)
    return [tool.to_spec() for tool in tools if tool.name in names]


def tool_choice(
    tools: Sequence[WireTool], choice: object, *, single: bool = False
) -> ToolChoice | None:
    """The calls that the answer must be, None if the model decides; raises ApiError.

    `single`: at most one call.
    """
    allowed = _allowed_tools(choice)
    if allowed is not None:
        choice = allowed.get("mode")
        if choice not in ("auto", "required"):
            raise invalid("tool_choice", 'the mode of allowed_tools must be "auto" or "required"')
    if choice in (None, "auto", "none"):
        return None
    name = "" if choice == "required" else _tool_name(choice)
    if name is None:
        raise invalid(
            "tool_choice", 'must be "none", "auto", "required", allowed_tools or name a tool'
        )
    if not tools:
        raise invalid("tool_choice", "tools are needed with it")
    if name:
        _check_offered(name, tools)
    return ToolChoice(name, single=single)


def _allowed_tools(choice: object) -> JsonObject | None:
    """The object of `{"type": "allowed_tools", "allowed_tools": {…}}`, whose fields may be flat."""
    if not isinstance(choice, dict) or cast(JsonObject, choice).get("type") != "allowed_tools":
        return None
    fields = cast(JsonObject, choice)
    inner = fields.get("allowed_tools", fields)
    allowed = cast(JsonObject, inner) if isinstance(inner, dict) else {}
    if not isinstance(allowed.get("tools"), list) or not allowed["tools"]:
        raise invalid("tool_choice", "allowed_tools needs a list of tools")
    return allowed


def _tool_name(choice: object) -> str | None:
    """The name in `{"type": "function", "function": {"name": …}}`, or beside the type."""
    if not isinstance(choice, dict):
        return None
    fields = cast(JsonObject, choice)
    kind = fields.get("type", "function")
    tool = fields.get(kind, fields) if isinstance(kind, str) else None
    name = cast(JsonObject, tool).get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) and name else None


def _check_offered(name: str | None, tools: Sequence[WireTool]) -> None:
    if name not in [tool.name for tool in tools]:
        raise invalid(
            "tool_choice", f"there is no tool {name!r}" if name else "a tool needs its name"
        )
