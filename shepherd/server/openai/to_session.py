"""A chat request as a `Session`."""

from collections.abc import Sequence
from typing import cast

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.server.errors import ApiError, unsupported
from shepherd.server.openai.requests import ChatRequest, WireMessage, WireTool, WireToolCall
from shepherd.session import Session
from shepherd.structure import OutputFormat, ToolChoice

MAX_TOKENS = 2**31 - 1
"""Larger limits mean this one."""

_INSTRUCTIONS = ("system", "developer")
_SHOWING = ("user", "tool", "function")
_ANY_OBJECT: JsonObject = {"type": "object"}


def session_from_request(request: ChatRequest, *, thinking: bool) -> Session:
    """The conversation of a request; `thinking` is the default.

    Raises ApiError for parameters that would change the answer and are not supported.
    """
    check_supported(request)
    instructions = (m.content.text for m in request.messages if m.role in _INSTRUCTIONS)
    system = [text for text in instructions if text]
    requested = wants_thinking(request)
    return Session(
        system_message="\n\n".join(system),
        messages=_conversation(request.messages),
        tools=[] if request.tool_choice == "none" else [_spec(t) for t in request.tools],
        sampling=request.to_sampling(),
        thinking=thinking if requested is None else requested,
        tool_choice=tool_choice(request),
        output_format=output_format(request),
    )


def tool_choice(request: ChatRequest) -> ToolChoice | None:
    """The calls that the answer must be, None if the model decides; raises ApiError."""
    choice = request.tool_choice
    if choice in (None, "auto", "none"):
        return None
    name = "" if choice == "required" else _function_name(choice)
    if name is None:
        raise _bad_choice('must be "none", "auto", "required" or name a function')
    if not request.tools:
        raise _bad_choice("tools are needed with it")
    if name and name not in (tool.function.name for tool in request.tools):
        raise _bad_choice(f"there is no tool {name!r}")
    return ToolChoice(name, single=request.parallel_tool_calls is False)


def token_limit(request: ChatRequest, default: int = 0) -> int:
    """How many tokens may be generated; 0 is as many as fit."""
    limit = request.max_completion_tokens or request.max_tokens or default
    return min(max(limit, 0), MAX_TOKENS)


def choice_count(request: ChatRequest, maximum: int) -> int:
    """How many answers are asked for; raises ApiError above `maximum`."""
    count = 1 if request.n is None else request.n
    if count > maximum:
        message = f"n: must be at most {maximum} here (server.max_choices), got {count}"
        raise ApiError(400, message, "invalid_value", "n")
    return count


def wants_thinking(request: ChatRequest) -> bool | None:
    """Whether the request asks for reasoning, None if it does not say."""
    options = request.chat_template_kwargs
    if options is not None and options.enable_thinking is not None:
        return options.enable_thinking
    return None if request.reasoning_effort is None else request.reasoning_effort != "none"


def check_supported(request: ChatRequest) -> None:
    """Raise ApiError for parameters that are not supported."""
    if request.functions or request.function_call not in (None, "auto", "none"):
        raise unsupported("functions", "functions are not served; use tools.")
    if request.modalities not in (None, [], ["text"]):
        raise unsupported("modalities", "Only text is served.")


def _function_name(choice: object) -> str | None:
    """The name in `{"type": "function", "function": {"name": …}}`, or beside the type."""
    if not isinstance(choice, dict):
        return None
    fields = cast(JsonObject, choice)
    function = fields.get("function", fields)
    name = cast(JsonObject, function).get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) and name else None


def _bad_choice(reason: str) -> ApiError:
    return ApiError(400, f"tool_choice: {reason}", "invalid_value", "tool_choice")


def _conversation(wire: Sequence[WireMessage]) -> list[Message]:
    """The messages without instructions; results get the name of the tool they answer."""
    names: dict[str, str] = {}
    messages: list[Message] = []
    for index, message in enumerate(wire):
        match message.role:
            case "system" | "developer":
                continue
            case "user":
                messages.append(Message.user(message.content.text, message.content.images))
            case "assistant":
                calls = tuple(
                    _call(call, f"call_{index}_{i}") for i, call in enumerate(message.tool_calls)
                )
                names.update((call.id, call.name) for call in calls)
                reasoning = message.reasoning_content or message.reasoning or ""
                messages.append(Message.assistant(message.content.text, reasoning, calls))
            case "tool" | "function":
                messages.append(_result(message, names, f"messages.{index}"))
    return messages


def _call(wire: WireToolCall, default_id: str) -> ToolCall:
    return ToolCall(wire.id or default_id, wire.function.name, wire.function.arguments)


def _result(message: WireMessage, names: dict[str, str], where: str) -> Message:
    call_id = message.tool_call_id or ""
    if message.role == "tool" and not call_id:
        param = f"{where}.tool_call_id"
        raise ApiError(400, f"{param}: a tool message needs it", "invalid_value", param)
    name = names.get(call_id) or message.name or ""
    content = message.content
    return Message(Role.TOOL, content.text, tool_call_id=call_id, name=name, images=content.images)


def _spec(wire: WireTool) -> ToolSpec:
    function = wire.function
    empty: JsonObject = {"type": "object", "properties": {}}
    return ToolSpec(function.name, function.description or "", function.parameters or empty)


def check_images(request: ChatRequest, model: ModelInfo) -> None:
    """Raise ApiError for an image that the model can't see, or in a message of a wrong role."""
    for index, message in enumerate(request.messages):
        if not message.content.images:
            continue
        param = f"messages.{index}.content"
        if model.vision is False:
            text = f"images are not supported: {model.id} reads text only; leave them out"
            raise ApiError(400, f"{param}: {text}", "invalid_value", param)
        if message.role not in _SHOWING:
            text = "images go with messages of the user and of tools"
            raise ApiError(400, f"{param}: {text}", "invalid_value", param)


def output_format(request: ChatRequest) -> OutputFormat | None:
    """The format of the answer, None for free text; raises ApiError."""
    response_format = request.response_format
    fields = (
        cast(JsonObject, response_format)
        if isinstance(response_format, dict)
        else {"type": response_format}
    )
    kind = fields.get("type")
    if request.grammar:
        if kind not in (None, "text"):
            raise ApiError(400, "grammar: not with a response_format", "invalid_value", "grammar")
        return OutputFormat(grammar=request.grammar)
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return OutputFormat(_schema(fields.get("schema") or _ANY_OBJECT))
    if kind == "json_schema":
        return _json_schema(fields.get("json_schema"))
    raise _bad("its type must be text, json_object or json_schema")


def _json_schema(value: object) -> OutputFormat:
    if not isinstance(value, dict):
        raise _bad("json_schema must be an object with a schema")
    fields = cast(JsonObject, value)
    return OutputFormat(_schema(fields.get("schema")), strict=fields.get("strict") is True)


def _schema(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise _bad("the schema must be an object")
    return cast(JsonObject, value)


def _bad(reason: str) -> ApiError:
    where = "response_format"
    return ApiError(400, f"{where}: {reason}", "invalid_value", where)
