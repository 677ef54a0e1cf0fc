"""What the answer must be: `tool_choice` and `text.format`."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError, invalid, unsupported
from shepherd.server.openai_responses.requests import ResponsesRequest
from shepherd.server.openai_responses.tools import OfferedTool, Toolset
from shepherd.structure import OutputFormat, ToolChoice

_CHOICE = "tool_choice"
_FORMAT = "text.format"
_ANY_OBJECT: JsonObject = {"type": "object"}
_KINDS = ("function", "custom")
MAX_ALLOWED = 1000
ToolsByName: TypeAlias = Mapping[str, Sequence[OfferedTool]]


def choose(request: ResponsesRequest, offered: Toolset) -> tuple[Toolset, ToolChoice | None]:
    """The tools that the model sees, and the calls that the answer must be; raises ApiError."""
    choice, single = request.tool_choice, request.parallel_tool_calls is False
    if choice in (None, "auto"):
        return offered, None
    if choice == "none":
        return offered.keep(lambda _: False), None
    if choice == "required":
        return _required(offered, single=single)
    if not isinstance(choice, dict):
        raise _bad_choice('must be "none", "auto", "required" or an object with a type')
    fields = cast(JsonObject, choice)
    kind: Any = fields.get("type")
    if kind == "allowed_tools":
        return _allowed(fields, offered, single=single)
    if kind in _KINDS:
        return offered, ToolChoice(
            _named(fields, offered.by_name(), _CHOICE).spec.name, single=single
        )
    raise unsupported(_CHOICE, f"tool_choice: tools of type {str(kind)[:40]!r} do not run here.")


def _required(offered: Toolset, *, single: bool) -> tuple[Toolset, ToolChoice]:
    if not offered.tools:
        raise _bad_choice("a call is required, but no tools are offered")
    return offered, ToolChoice(single=single)


def _allowed(
    fields: JsonObject, offered: Toolset, *, single: bool
) -> tuple[Toolset, ToolChoice | None]:
    """Only the tools that are named, of which one must be called if the mode is `required`."""
    fields = cast(JsonObject, fields.get("allowed_tools", fields))
    mode: Any = fields.get("mode")
    names: Any = fields.get("tools")
    if mode not in ("auto", "required"):
        raise _bad_choice("the mode must be auto or required", "mode")
    if not isinstance(names, list) or len(cast(list[Any], names)) > MAX_ALLOWED:
        raise _bad_choice("tools must be a list of tools", "tools")
    allowed: set[str] = set()
    by_name = offered.by_name()
    for index, item in enumerate(cast(list[Any], names)):
        param = f"{_CHOICE}.tools.{index}"
        if _is_namespace(item):
            continue
        allowed |= _allowed_names(item, by_name, param)
    groups = {item["name"] for item in cast(list[Any], names) if _is_namespace(item)}
    allowed |= {tool.spec.name for tool in offered.tools if tool.namespace in groups}
    kept = offered.keep(lambda tool: tool.spec.name in allowed)
    return _required(kept, single=single) if mode == "required" else (kept, None)


def _is_namespace(item: Any) -> bool:
    fields = cast(JsonObject, item) if isinstance(item, dict) else {}
    return fields.get("type") == "namespace" and isinstance(fields.get("name"), str)


def _allowed_names(item: object, tools: ToolsByName, param: str) -> set[str]:
    """The tool that one entry allows; none if it is of a type that is left out."""
    fields = cast(JsonObject, item) if isinstance(item, dict) else {}
    kind: Any = fields.get("type")
    if isinstance(kind, str) and kind not in _KINDS:
        return set()
    return {_named(fields, tools, param).spec.name}


def _named(fields: JsonObject, tools: ToolsByName, param: str) -> OfferedTool:
    """The tool that `{"type": …, "name": …}` names."""
    inner: Any = fields.get("function", fields)
    source = cast(JsonObject, inner) if isinstance(inner, dict) else {}
    name, namespace = source.get("name"), source.get("namespace")
    custom = fields.get("type") == "custom"
    same: Sequence[OfferedTool] = tools.get(name, ()) if isinstance(name, str) else ()
    for tool in same:
        if tool.custom == custom and namespace in (None, tool.namespace):
            return tool
    raise invalid(param, f"there is no {fields.get('type')} tool {str(name)[:256]!r}")


def _bad_choice(reason: str, field: str = "") -> ApiError:
    param = f"{_CHOICE}.{field}" if field else _CHOICE
    return invalid(param, reason)


def output_format(request: ResponsesRequest) -> OutputFormat | None:
    """The format of the answer, None for free text; raises ApiError."""
    value: Any = request.text.format if request.text is not None else None
    if value is None:
        return None
    fields = cast(JsonObject, value) if isinstance(value, dict) else {}
    match fields.get("type"):
        case "text":
            return None
        case "json_object":
            return OutputFormat(_ANY_OBJECT)
        case "json_schema":
            return _json_schema(fields)
        case _:
            raise invalid(_FORMAT, "its type must be text, json_object or json_schema")


def _json_schema(fields: JsonObject) -> OutputFormat:
    """A schema that stands beside its name, as this API has it."""
    schema: Any = fields.get("schema")
    if not isinstance(schema, dict):
        param = f"{_FORMAT}.schema"
        raise ApiError(400, f"{param} must be an object", "invalid_value", param)
    return OutputFormat(cast(JsonObject, schema), strict=fields.get("strict") is True)
