"""Tools, calls and the tool choice of the chat completions API."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, model_validator

from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError
from shepherd.server.wire.content import arguments_object
from shepherd.structure import ToolChoice


class WireFunctionCall(RequestModel):
    """The function of a replayed call; its arguments come as JSON text or as an object."""

    name: Annotated[str, Field(min_length=1)]
    arguments: Annotated[JsonObject, BeforeValidator(arguments_object)] = Field(
        default_factory=dict[str, Any]
    )


class WireToolCall(RequestModel):
    """A call in the history."""

    id: str | None = None
    function: WireFunctionCall

    def to_call(self, default_id: str) -> ToolCall:
        """The call; it gets `default_id` if it has no id."""
        return ToolCall(self.id or default_id, self.function.name, self.function.arguments)


class WireFunction(RequestModel):
    """A function on offer; `parameters` is a JSON schema."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: JsonObject | None = None


class WireTool(RequestModel):
    """A tool on offer; the function's fields may also stand beside the type."""

    type: Literal["function"] = "function"
    function: WireFunction

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, value: object) -> object:
        if isinstance(value, dict) and "function" not in value and "name" in value:
            fields = cast(JsonObject, value)
            return {"type": fields.get("type", "function"), "function": fields}
        return cast(object, value)

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function.name

    def to_spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        function = self.function
        empty: JsonObject = {"type": "object", "properties": {}}
        return ToolSpec(function.name, function.description or "", function.parameters or empty)


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
            raise _bad_choice('the mode of allowed_tools must be "auto" or "required"')
    if choice in (None, "auto", "none"):
        return None
    name = "" if choice == "required" else _tool_name(choice)
    if name is None:
        raise _bad_choice('must be "none", "auto", "required", allowed_tools or name a tool')
    if not tools:
        raise _bad_choice("tools are needed with it")
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
        raise _bad_choice("allowed_tools needs a list of tools")
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
        raise _bad_choice(f"there is no tool {name!r}" if name else "a tool needs its name")


def _bad_choice(reason: str) -> ApiError:
    return ApiError(400, f"tool_choice: {reason}", "invalid_value", "tool_choice")
