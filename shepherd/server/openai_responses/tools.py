"""The tools of a request: which the model is offered, and which calls the answer must be."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, cast

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import Field, ValidationError

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError, invalid, invalid_body, unsupported
from shepherd.server.openai_responses.items import at_param
from shepherd.server.wire.fields import MAX_TOOLS
from shepherd.server.wire.tools import CustomTool, ToolName, WireFunction
from shepherd.session import ToolChoice

_CHOICE = "tool_choice"
_CALLED = ("function", "custom")
_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class FunctionTool(WireFunction):
    """A function."""

    type: Literal["function"]


class TypedCustomTool(CustomTool):
    """A tool whose input is text."""

    type: Literal["custom"]


class NamespaceTool(RequestModel):
    """A group of functions and custom tools."""

    type: Literal["namespace"]
    name: ToolName
    description: str | None = None
    tools: list[JsonObject] = Field(default_factory=list[JsonObject])


_MODELS: dict[str, type[FunctionTool | TypedCustomTool | NamespaceTool]] = {
    "function": FunctionTool,
    "custom": TypedCustomTool,
    "namespace": NamespaceTool,
}


class OfferedTool(Struct, frozen=True):
    """A tool as the model sees it (`spec`), and its name, namespace and kind in the API."""

    spec: ToolSpec
    name: str
    namespace: str = ""
    custom: bool = False


class Toolset(Struct, frozen=True):
    """The tools that can be offered; `left_out` are the types of those that only OpenAI runs."""

    tools: tuple[OfferedTool, ...] = ()
    left_out: tuple[str, ...] = ()

    def by_name(self) -> dict[str, list[OfferedTool]]:
        """The tools by their names in the API."""
        tools: dict[str, list[OfferedTool]] = {}
        for tool in self.tools:
            tools.setdefault(tool.name, []).append(tool)
        return tools

    def of_call(self, call: ToolCall) -> OfferedTool:
        """The tool that the model has called; one that is not offered is a function."""
        offered = (tool for tool in self.tools if tool.spec.name == call.name)
        return next(offered, OfferedTool(ToolSpec(call.name, ""), call.name))


def toolset(values: Sequence[JsonObject], model: ModelInfo) -> Toolset:
    """The tools of a request; raises ApiError that names the place of a mistake."""
    reader = _ToolReader(model)
    for index, value in enumerate(values):
        reader.add(value, f"tools.{index}")
        if len(reader.offered) > MAX_TOOLS:
            raise invalid("tools", f"must be at most {MAX_TOOLS:,} tools, also in namespaces")
    return Toolset(_unambiguous(reader.offered), tuple(reader.left_out))


class _ToolReader(Struct):
    """Reads the tools of a request; `left_out` are the types of those that only OpenAI runs."""

    model: ModelInfo
    offered: list[OfferedTool] = field(default_factory=list[OfferedTool])
    left_out: list[str] = field(default_factory=list[str])

    def add(self, value: JsonObject, param: str, group: NamespaceTool | None = None) -> None:
        """Add the tool at `param`, which is one of `group`, or all tools of a namespace."""
        tool = _parsed(value, param)
        if tool is None or (group is not None and isinstance(tool, NamespaceTool)):
            kind: str = value["type"]
            self.left_out.append(kind if _TYPE.fullmatch(kind) else ascii(kind[:64]))
        elif isinstance(tool, NamespaceTool):
            for index, nested in enumerate(tool.tools):
                self.add(nested, f"{param}.tools.{index}", tool)
        else:
            self.offered.append(self._in_group(tool, param, group))

    def _in_group(
        self, tool: FunctionTool | TypedCustomTool, param: str, group: NamespaceTool | None
    ) -> OfferedTool:
        if isinstance(tool, TypedCustomTool):
            tool.check_format(self.model, f"{param}.format")
        spec = tool.to_spec()
        if group is not None and group.description:
            lines = (spec.description, f"Part of {group.name}: {group.description}")
            spec = replace(spec, description="\n".join(filter(None, lines)))
        namespace = group.name if group is not None else ""
        return OfferedTool(spec, tool.name, namespace, custom=isinstance(tool, TypedCustomTool))


def _parsed(value: JsonObject, param: str) -> FunctionTool | TypedCustomTool | NamespaceTool | None:
    """The tool, None for one of another type."""
    kind: Any = value.get("type")
    if not isinstance(kind, str):
        message = f"{param}.type must be a string"
        raise ApiError(400, message, "invalid_value", f"{param}.type")
    model = _MODELS.get(kind)
    if model is None:
        return None
    fields = value
    if "name" not in value and isinstance(value.get("function"), dict):
        fields = cast(JsonObject, value["function"])  # as the chat API has it
    try:
        return model.model_validate({**fields, "type": kind})
    except ValidationError as error:
        raise at_param(invalid_body(error), param) from error


def _unambiguous(tools: Sequence[OfferedTool]) -> tuple[OfferedTool, ...]:
    """The tools; where names occur twice, those in namespaces are offered with both names."""
    uses = Counter(tool.name for tool in tools)
    return tuple(
        replace(tool, spec=replace(tool.spec, name=f"{tool.namespace}__{tool.name}"))
        if tool.namespace and uses[tool.name] > 1
        else tool
        for tool in tools
    )


def choose(choice: Any, offered: Toolset, *, single: bool) -> tuple[Toolset, ToolChoice | None]:
    """The tools that the model sees, and the calls that the answer must be; raises ApiError.

    `single`: at most one call.
    """
    if choice in (None, "auto"):
        return offered, None
    if choice == "none":
        return Toolset(), None
    kept = offered
    if choice != "required":
        if not isinstance(choice, dict):
            raise invalid(_CHOICE, 'must be "none", "auto", "required" or an object with a type')
        fields = cast(JsonObject, choice)
        kind: Any = fields.get("type")
        if kind in _CALLED:
            tool = _named(fields, offered, _CHOICE)
            return offered, ToolChoice(tool.spec.name, single=single)
        if kind != "allowed_tools":
            message = f"tool_choice: tools of type {str(kind)[:40]!r} do not run here."
            raise unsupported(_CHOICE, message)
        kept, is_required = _allowed(fields, offered)
        if not is_required:
            return kept, None
    if not kept.tools:
        raise invalid(_CHOICE, "a call is required, but no tools are offered")
    return kept, ToolChoice(single=single)


def _allowed(choice: JsonObject, offered: Toolset) -> tuple[Toolset, bool]:
    """Only the tools that are named, and whether one of them must be called."""
    inner: object = choice.get("allowed_tools", choice)
    allowed = cast(JsonObject, inner) if isinstance(inner, dict) else {}
    mode, tools = allowed.get("mode"), cast(object, allowed.get("tools"))
    if mode not in ("auto", "required"):
        raise invalid(f"{_CHOICE}.mode", "the mode must be auto or required")
    items = cast(list[object], tools) if isinstance(tools, list) else None
    if items is None or len(items) > MAX_TOOLS:
        raise invalid(f"{_CHOICE}.tools", "tools must be a list of tools")
    kept: list[OfferedTool] = []
    for index, item in enumerate(items):
        named = cast(JsonObject, item) if isinstance(item, dict) else {}
        kind: Any = named.get("type")
        if kind == "namespace" and isinstance(named.get("name"), str):
            kept += [tool for tool in offered.tools if tool.namespace == named["name"]]
        elif kind in _CALLED or not isinstance(kind, str):  # tools of other types do not run here
            kept.append(_named(named, offered, f"{_CHOICE}.tools.{index}"))
    in_order = tuple(tool for tool in offered.tools if tool in kept)
    return replace(offered, tools=in_order), mode == "required"


def _named(fields: JsonObject, offered: Toolset, param: str) -> OfferedTool:
    """The tool that `{"type": …, "name": …}` names."""
    inner: Any = fields.get("function", fields)
    source = cast(JsonObject, inner) if isinstance(inner, dict) else {}
    name, namespace = source.get("name"), source.get("namespace")
    custom = fields.get("type") == "custom"
    for tool in offered.tools:
        is_same = tool.name == name and tool.custom == custom
        if is_same and namespace in (None, tool.namespace):
            return tool
    raise invalid(param, f"there is no {fields.get('type')} tool {str(name)[:256]!r}")
