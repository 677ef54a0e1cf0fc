"""The tools of a request, as the model is offered them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, structs
from pydantic import Field, ValidationError

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError, invalid, invalid_body
from shepherd.server.openai_responses.defined import DEFINED
from shepherd.server.openai_responses.items import at_param
from shepherd.server.wire.fields import MAX_TOOLS
from shepherd.server.wire.tools import CustomTool, OfferedTool, OfferedTools, ToolName, WireFunction


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


class ClientTool(RequestModel):
    """A tool of `DEFINED`; a shell may have an `environment` in which OpenAI runs it."""

    type: Literal["local_shell", "shell", "apply_patch"]
    environment: JsonObject | None = None

    @property
    def name(self) -> str:
        """The tool's type, of which there is only one."""
        return self.type

    def to_spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        defined = DEFINED[self.type]
        schema = {"type": "object", "properties": defined.properties, "required": defined.required}
        return ToolSpec(self.type, defined.description, schema)


AnyTool: TypeAlias = FunctionTool | TypedCustomTool | ClientTool
_MODELS: Mapping[str, type[AnyTool | NamespaceTool]] = {
    "function": FunctionTool,
    "custom": TypedCustomTool,
    "namespace": NamespaceTool,
    **dict.fromkeys(DEFINED, ClientTool),
}


class Toolset(Struct, frozen=True):
    """The tools that can be offered; `left_out` are the types of those that only OpenAI runs."""

    tools: OfferedTools = ()
    left_out: tuple[str, ...] = ()

    def by_name(self) -> dict[str, list[OfferedTool]]:
        """The tools by their names in the API, under which several namespaces may have one."""
        tools: dict[str, list[OfferedTool]] = {}
        for tool in self.tools:
            tools.setdefault(tool.name, []).append(tool)
        return tools

    def of_call(self, call: ToolCall) -> OfferedTool:
        """The tool that the model has called; one that is not offered is a function."""
        for tool in self.tools:
            if tool.spec.name == call.name:
                return tool
        return OfferedTool(ToolSpec(call.name, ""), call.name)


def toolset(values: Sequence[JsonObject], model: ModelInfo) -> Toolset:
    """The tools of a request; raises ApiError that names the place of a mistake."""
    offered: list[OfferedTool] = []
    left_out: list[str] = []
    for tool, param, group in _tools_in(values, "tools"):
        if isinstance(tool, str):
            left_out.append(tool)
            continue
        if isinstance(tool, TypedCustomTool):
            tool.check_format(model, f"{param}.format")
        offered.append(_in_group(tool, group))
        if len(offered) > MAX_TOOLS:
            raise invalid("tools", f"must be at most {MAX_TOOLS:,} tools, also in namespaces")
    return Toolset(_unambiguous(offered), tuple(left_out))


def _tools_in(
    values: Sequence[JsonObject], where: str, group: NamespaceTool | None = None
) -> Iterator[tuple[AnyTool | str, str, NamespaceTool | None]]:
    """Each tool of a list with its place and its namespace; its type alone if it is not served."""
    for index, value in enumerate(values):
        param = f"{where}.{index}"
        tool = _parsed(value, param)
        if not isinstance(tool, NamespaceTool):
            yield tool or value["type"], param, group
        elif group is None:
            yield from _tools_in(tool.tools, f"{param}.tools", tool)
        else:  # namespaces do not nest
            yield tool.type, param, group


def _in_group(tool: AnyTool, group: NamespaceTool | None) -> OfferedTool:
    """The tool for the model, which also reads what its namespace is for."""
    spec = tool.to_spec()
    if group is None:
        return OfferedTool(spec, tool.name, kind=tool.type)
    if group.description:
        lines = (spec.description, f"Part of {group.name}: {group.description}")
        spec = structs.replace(spec, description="\n".join(filter(None, lines)))
    return OfferedTool(spec, tool.name, group.name, tool.type)


def _parsed(value: JsonObject, param: str) -> AnyTool | NamespaceTool | None:
    """The tool in the JSON at `param`; None for one of a type that only OpenAI runs."""
    kind: Any = value.get("type")
    if not isinstance(kind, str):
        raise ApiError(400, f"{param}.type must be a string", "invalid_value", f"{param}.type")
    model = _MODELS.get(kind)
    if model is None or "'container_" in str(value.get("environment")):
        return None
    fields = value
    if "name" not in value and isinstance(value.get("function"), dict):
        fields = cast(JsonObject, value["function"])  # as the chat API has it
    try:
        return model.model_validate({**fields, "type": kind})
    except ValidationError as error:
        raise at_param(invalid_body(error), param) from error


def _unambiguous(tools: Sequence[OfferedTool]) -> OfferedTools:
    """The tools; where names occur twice, those in namespaces are offered with both names.

    `find` and `crm.find` become `find` and `crm__find`, because the model has no namespaces.
    """
    uses = Counter(tool.name for tool in tools)
    named: list[OfferedTool] = []
    for tool in tools:
        if tool.namespace and uses[tool.name] > 1:
            spec = structs.replace(tool.spec, name=f"{tool.namespace}__{tool.name}")
            named.append(structs.replace(tool, spec=spec))
        else:
            named.append(tool)
    return tuple(named)
