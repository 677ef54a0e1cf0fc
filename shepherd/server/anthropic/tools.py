"""The tools of a request, and the calls that its answer must be."""

import logging
from collections.abc import Iterable, Mapping

from shepherd.messages import JsonObject, ToolSpec
from shepherd.server.anthropic.requests import PromptRequest, WireTool
from shepherd.server.errors import invalid
from shepherd.structure import ToolChoice

logger = logging.getLogger(__name__)

_ANY_OBJECT: JsonObject = {"type": "object", "properties": {}}
_TEXT: JsonObject = {"type": "string"}
_NUMBER: JsonObject = {"type": "integer"}
_RANGE: JsonObject = {"type": "array", "items": _NUMBER}


def _command_schema(commands: str, **properties: JsonObject) -> JsonObject:
    command = {"type": "string", "enum": commands.split()}
    return {
        "type": "object",
        "properties": {"command": command, **properties},
        "required": ["command"],
    }


_DEFINED: Mapping[str, tuple[str, JsonObject]] = {
    "bash_": (
        "Run a command in a bash session that stays open. With restart, start it anew.",
        {"type": "object", "properties": {"command": _TEXT, "restart": {"type": "boolean"}}},
    ),
    "text_editor_": (
        "View, create and edit text files.",
        _command_schema(
            "view create str_replace insert",
            path=_TEXT,
            file_text=_TEXT,
            old_str=_TEXT,
            new_str=_TEXT,
            insert_line=_NUMBER,
            insert_text=_TEXT,
            view_range=_RANGE,
        ),
    ),
    "memory_": (
        "Keep files under /memories, which last beyond this conversation.",
        _command_schema(
            "view create str_replace insert delete rename",
            path=_TEXT,
            view_range=_RANGE,
            file_text=_TEXT,
            old_str=_TEXT,
            new_str=_TEXT,
            insert_line=_NUMBER,
            insert_text=_TEXT,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
}
"""The tools that Anthropic defines and clients run, by how their types begin."""


def offered_tools(request: PromptRequest) -> list[ToolSpec]:
    """The tools that the model sees; raises ApiError for one without a name.

    Tools of other types, which mostly Anthropic's servers run, are left out, with a line in the
    log.
    """
    choice = request.tool_choice
    if choice is not None and choice.type == "none":
        return []
    specs = (_spec(tool, f"tools.{index}") for index, tool in enumerate(request.tools))
    return [spec for spec in specs if spec is not None]


def tool_choice(request: PromptRequest, tools: Iterable[ToolSpec]) -> ToolChoice | None:
    """The calls that the answer must be, None if the model decides; raises ApiError."""
    choice = request.tool_choice
    if choice is None or choice.type in ("auto", "none"):
        return None
    names = {tool.name for tool in tools}
    if choice.type == "tool" and choice.name not in names:
        is_known = choice.name in {tool.name for tool in request.tools}
        reason = "is not served here" if is_known else "is not among the tools"
        raise invalid("tool_choice.name", f"{choice.name!r} {reason}")
    if not names:
        raise invalid("tool_choice", "tools are needed with it")
    name = choice.name if choice.type == "tool" else ""
    return ToolChoice(name, single=choice.disable_parallel_tool_use is True)


def _spec(tool: WireTool, where: str) -> ToolSpec | None:
    """The tool for the model, None for one of another type."""
    if tool.type in (None, "custom"):
        if not tool.name:
            raise invalid(f"{where}.name", "a tool needs a name")
        schema = tool.input_schema or {}
        return ToolSpec(tool.name, tool.description or "", _object_schema(schema))
    for prefix, (description, schema) in _DEFINED.items():
        if tool.type.startswith(prefix) and tool.name:
            return ToolSpec(tool.name, description, schema)
    logger.info("A tool of type %.64s is left out: it is not served here", tool.type)
    return None


def _object_schema(schema: JsonObject) -> JsonObject:
    return {**_ANY_OBJECT, **schema}
