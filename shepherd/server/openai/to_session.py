"""A chat request as a `Session`."""

import re
from collections.abc import Sequence
from typing import cast

from shepherd.backends.base import ModelInfo
from shepherd.json_text import to_json
from shepherd.messages import JsonObject, Message, Role
from shepherd.server.errors import ApiError, unsupported
from shepherd.server.openai.requests import ChatRequest, WireMessage
from shepherd.server.openai.tools import offered_tools, tool_choice
from shepherd.server.wire.effort import effort_named
from shepherd.server.wire.formats import plain_format
from shepherd.server.wire.limits import MAX_TOKENS
from shepherd.session import Session
from shepherd.structure import OutputFormat

_INSTRUCTIONS = ("system", "developer")
_SHOWING = ("user", "tool", "function")
_KWARGS = "chat_template_kwargs"
_VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_OWN_VARIABLES = frozenset(
    {
        "add_generation_prompt",
        "bos_token",
        "documents",
        "eos_token",
        "messages",
        "raise_exception",
        "strftime_now",
        "tools",
    }
)
"""Variables that the server sets, or that hold what belongs into messages."""

MAX_TEMPLATE_BYTES = 16 * 1024
_ANY_OBJECT: JsonObject = {"type": "object"}


def session_from_request(request: ChatRequest, *, thinking: bool) -> Session:
    """The conversation of a request; `thinking` is the default.

    Raises ApiError for parameters that would change the answer and are not supported.
    """
    check_supported(request)
    instructions = (m.content.text for m in request.messages if m.role in _INSTRUCTIONS)
    system = [text for text in instructions if text]
    requested = wants_thinking(request)
    single = request.parallel_tool_calls is False
    return Session(
        system_message="\n\n".join(system),
        messages=_conversation(request.messages),
        tools=offered_tools(request.tools, request.tool_choice),
        sampling=request.to_sampling(),
        thinking=thinking if requested is None else requested,
        thinking_budget=_thinking_budget(request),
        thinking_effort=effort_named(request.reasoning_effort),
        tool_choice=tool_choice(request.tools, request.tool_choice, single=single),
        output_format=output_format(request),
        continues=bool(request.continue_final_message),
        template_values=template_values(request),
    )


def token_limit(request: ChatRequest, default: int = 0) -> int:
    """The maximum of generated tokens; 0 is as many as fit."""
    limit = request.max_completion_tokens or request.max_tokens or default
    return min(max(limit, 0), MAX_TOKENS)


def choice_count(request: ChatRequest, maximum: int) -> int:
    """The requested number of answers; raises ApiError above `maximum`."""
    count = 1 if request.n is None else request.n
    if count > maximum:
        message = f"n: must be at most {maximum} here (server.max_choices), got {count}"
        raise ApiError(400, message, "invalid_value", "n")
    return count


def wants_thinking(request: ChatRequest) -> bool | None:
    """Whether the request enables reasoning, None if it does not say."""
    options = request.chat_template_kwargs
    if options is not None and options.enable_thinking is not None:
        return options.enable_thinking
    return None if request.reasoning_effort is None else request.reasoning_effort != "none"


def _thinking_budget(request: ChatRequest) -> int | None:
    """The limit of reasoning in tokens; None without one."""
    budget = request.thinking_budget_tokens
    return None if budget is None or budget < 0 else budget


def check_supported(request: ChatRequest) -> None:
    """Raise ApiError for parameters that are not supported."""
    if request.functions or request.function_call not in (None, "auto", "none"):
        raise unsupported("functions", "functions are not served; use tools.")
    if request.modalities not in (None, [], ["text"]):
        raise unsupported("modalities", "Only text is served.")
    if request.audio is not None:
        raise unsupported("audio", "Only text is served.")
    if request.web_search_options is not None:
        raise unsupported("web_search_options", "This server searches nothing; offer a tool.")
    if request.add_generation_prompt is False and not request.continue_final_message:
        message = "add_generation_prompt: false only with continue_final_message"
        raise unsupported("add_generation_prompt", message)


def template_values(request: ChatRequest) -> dict[str, object]:
    """The variables of the chat template that a request sets; raises ApiError."""
    values = request.chat_template_kwargs.values if request.chat_template_kwargs else {}
    for name in values:
        if name in _OWN_VARIABLES or not _VARIABLE.fullmatch(name):
            message = f"{_KWARGS}: {name[:80]!r} can't be set"
            raise ApiError(400, message, "invalid_value", _KWARGS)
    size = len(to_json(values).encode()) if values else 0
    if size > MAX_TEMPLATE_BYTES:
        message = f"{_KWARGS}: must have at most {MAX_TEMPLATE_BYTES} bytes, got {size}"
        raise ApiError(400, message, "invalid_value", _KWARGS)
    return values


def check_template_values(request: ChatRequest, model: ModelInfo) -> None:
    """Raise ApiError for variables of a template that is not in this process."""
    values = request.chat_template_kwargs.values if request.chat_template_kwargs else {}
    if values and not model.raw_prompts:
        name = f"{_KWARGS}.{next(iter(values))[:80]}"
        message = f"{model.id} does not run in this process, so its template can't have {name}."
        raise unsupported(name, message)


def check_continuation(request: ChatRequest, model: ModelInfo) -> None:
    """Raise ApiError unless the last message can be continued, where that is requested."""
    kind, where = request.continue_final_message, "continue_final_message"
    if not kind:
        return
    if not model.raw_prompts:
        message = f"{model.id} does not run in this process, so it can't continue a message."
        raise unsupported(where, message)
    last = request.messages[-1]
    reasoning = bool(last.reasoning_content or last.reasoning)
    if request.add_generation_prompt:
        problem = "add_generation_prompt must not be true with it"
    elif last.role != "assistant" or last.tool_calls:
        problem = "the last message must be the assistant's, without tool calls"
    elif kind == "reasoning_content" and (last.content.text or not reasoning):
        problem = "the last message must have reasoning_content and no content"
    elif kind == "content" and reasoning and not last.content.text:
        problem = "the last message must have content"
    else:
        return
    raise ApiError(400, f"{where}: {problem}", "invalid_value", where)


def _conversation(wire: Sequence[WireMessage]) -> list[Message]:
    """The messages without instructions; results get the name of their tool."""
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
                    call.to_call(f"call_{index}_{i}") for i, call in enumerate(message.tool_calls)
                )
                names.update((call.id, call.name) for call in calls)
                reasoning = message.reasoning_content or message.reasoning or ""
                messages.append(Message.assistant(message.content.text, reasoning, calls))
            case "tool" | "function":
                messages.append(_result(message, names, f"messages.{index}"))
    return messages


def _result(message: WireMessage, names: dict[str, str], where: str) -> Message:
    call_id = message.tool_call_id or ""
    if message.role == "tool" and not call_id:
        param = f"{where}.tool_call_id"
        raise ApiError(400, f"{param}: a tool message needs it", "invalid_value", param)
    name = names.get(call_id) or message.name or ""
    content = message.content
    return Message(Role.TOOL, content.text, tool_call_id=call_id, name=name, images=content.images)


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
    plain = plain_format(request.grammar, request.json_schema)
    if plain is not None:
        if kind not in (None, "text"):
            where = "grammar" if request.grammar else "json_schema"
            raise ApiError(400, f"{where}: not with a response_format", "invalid_value", where)
        return plain
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
