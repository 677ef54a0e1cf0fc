"""`use_tool`: the call of a tool that the prompt does not list."""

import json
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any, cast

from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.tools.deferred.ranking import nearest_names

FIND_TOOLS, USE_TOOL = "find_tools", "use_tool"
RESERVED_NAMES = frozenset({FIND_TOOLS, USE_TOOL})

USE_TOOL_SPEC = ToolSpec(
    USE_TOOL,
    f"Call a tool that {FIND_TOOLS} returned.",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"],
    },
)
USAGE = (
    f"{USE_TOOL} needs two arguments: `name`, the name of another tool, and `arguments`, an object"
)


def open_call(call: ToolCall, client_tools: Container[str] = ()) -> ToolCall:
    """The call inside a call of `use_tool`; any other call, and a malformed one, as it is.

    `use_tool` is not in any registry, so a call that is not opened never runs. `client_tools` are
    run by a client, which may have a tool of this name.
    """
    if call.name != USE_TOOL or USE_TOOL in client_tools:
        return call
    values = dict(call.arguments)
    name = values.pop("name", None)
    arguments = _arguments(values)
    if not isinstance(name, str) or arguments is None or name.strip() in client_tools:
        return call
    return replace(call, name=name.strip(), arguments=arguments)


def unknown_tool(name: str, names: Iterable[str]) -> str:
    """The error for a call of a tool that does not exist."""
    if name == USE_TOOL:
        return USAGE
    nearest = nearest_names(name, names)
    return f"unknown tool: {name}" + (f"; similar: {', '.join(nearest)}" if nearest else "")


def _arguments(values: JsonObject) -> JsonObject | None:
    """The arguments of the inner call, None if they are malformed.

    Some models write them as JSON in a string, or beside the name.
    """
    if "arguments" not in values:
        return values
    if len(values) > 1:
        return None
    value: Any = values["arguments"]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return cast(JsonObject, value) if isinstance(value, dict) else None
