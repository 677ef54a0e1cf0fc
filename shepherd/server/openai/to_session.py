"""A chat request as an exchange: its session, the checks that need the model, and its answer."""

import re
from collections.abc import Sequence
from typing import cast

from shepherd.backends.base import ModelInfo
from shepherd.json_text import to_json
from shepherd.messages import JsonObject, Message, Role, ToolSpec
from shepherd.server.errors import invalid, unsupported
from shepherd.server.openai.answers import ChatAnswer
from shepherd.server.openai.requests import ChatRequest, WireCustom, WireMessage
from shepherd.server.serving import Exchange
from shepherd.server.settings import ServerSettings
from shepherd.server.wire.fields import (
    can_continue,
    check_images,
    choice_count,
    effort_named,
    token_budget,
)
from shepherd.server.wire.tools import OfferedTool, choose_tools
from shepherd.session import OutputFormat, Session, ToolChoice

_INSTRUCTIONS = ("system", "developer")
_SHOWING = ("user", "tool", "function")
_KWARGS = "chat_template_kwargs"
_FORMAT = "response_format"
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


def chat_exchange(body: ChatRequest, settings: ServerSettings, model: ModelInfo) -> Exchange:
    """The exchange of a chat request; raises ApiError."""
    _check_images(body, model)
    for index, offered in enumerate(body.tools):
        if offered.is_served and isinstance(offered.tool, WireCustom):
            offered.tool.check_format(model, f"tools.{index}.custom.format")
    _check_continuation(body, model)
    _check_template_values(body, model)
    session = session_from_request(body, thinking=settings.thinking)
    if body.continue_final_message is None and not body.add_generation_prompt:
        session.continues = can_continue(session.messages, model)
    answer = ChatAnswer(body, model, session.thinking)
    return Exchange(
        session,
        answer,
        count=choice_count(body.n, settings.max_choices, "n"),
        max_tokens=body.token_limit(settings.max_tokens),
        progress=answer.progress if body.stream and body.return_progress else None,
        slot=body.slot,
        tools_allowed=body.tool_choice != "none",
        left_out=[wire.type for wire in body.tools if not wire.is_served],
    )


def session_from_request(request: ChatRequest, *, thinking: bool) -> Session:
    """The conversation of a request; `thinking` is the default.

    Raises ApiError for parameters that would change the answer and are not supported.
    """
    _check_supported(request)
    instructions = (m.content.text for m in request.messages if m.role in _INSTRUCTIONS)
    requested = _wants_thinking(request)
    tools, tool_choice = _choose_tools(request)
    return Session(
        system_message="\n\n".join(filter(None, instructions)),
        messages=_conversation(request.messages),
        tools=tools,
        sampling=request.to_sampling(),
        thinking=thinking if requested is None else requested,
        thinking_budget=token_budget(request.thinking_budget_tokens),
        thinking_effort=effort_named(request.reasoning_effort),
        tool_choice=tool_choice,
        output_format=_output_format(request),
        continues=bool(request.continue_final_message),
        template_values=_template_values(request),
    )


def _check_supported(request: ChatRequest) -> None:
    """Raise ApiError for fields that need another kind of answer than text and calls."""
    if request.functions or request.function_call not in (None, "auto", "none"):
        raise unsupported("functions", "functions are not served; use tools.")
    if request.modalities not in (None, [], ["text"]):
        raise unsupported("modalities", "Only text is served.")
    if request.web_search_options is not None:
        raise unsupported("web_search_options", "This server searches nothing; offer a tool.")
    if request.add_generation_prompt is False and not request.continue_final_message:
        message = "add_generation_prompt: false only with continue_final_message"
        raise unsupported("add_generation_prompt", message)


def _wants_thinking(request: ChatRequest) -> bool | None:
    """Whether the request enables reasoning, None if it does not say.

    The template's own option outweighs the effort.
    """
    options = request.chat_template_kwargs
    if options is not None and options.enable_thinking is not None:
        return options.enable_thinking
    return None if request.reasoning_effort is None else request.reasoning_effort != "none"


def _check_images(request: ChatRequest, model: ModelInfo) -> None:
    """Raise ApiError for an image that the model can't see, or in a message of a wrong role."""
    for index, message in enumerate(request.messages):
        param = f"messages.{index}.content"
        check_images(message.content.images, model, param)
        if message.content.images and message.role not in _SHOWING:
            raise invalid(param, "images go with messages of the user and of tools")


def _template_values(request: ChatRequest) -> dict[str, object]:
    """The variables of the chat template that a request sets; raises ApiError."""
    values = request.template_values
    for name in values:
        if name in _OWN_VARIABLES or not _VARIABLE.fullmatch(name):
            raise invalid(_KWARGS, f"{name[:80]!r} can't be set")
    size = len(to_json(values).encode())
    if size > MAX_TEMPLATE_BYTES:
        raise invalid(_KWARGS, f"must have at most {MAX_TEMPLATE_BYTES} bytes, got {size}")
    return values


def _check_template_values(request: ChatRequest, model: ModelInfo) -> None:
    """Raise ApiError for variables of a template that is not in this process."""
    if request.template_values and not model.raw_prompts:
        where = f"{_KWARGS}.{next(iter(request.template_values))[:80]}"
        message = f"{model.id} does not run in this process, so its template can't have {where}."
        raise unsupported(where, message)


def _check_continuation(request: ChatRequest, model: ModelInfo) -> None:
    """Raise ApiError unless the last message can be continued, where that is requested."""
    continued_part, where = request.continue_final_message, "continue_final_message"
    if not continued_part:
        return
    if not model.raw_prompts:
        message = f"{model.id} does not run in this process, so it can't continue a message."
        raise unsupported(where, message)
    last = request.messages[-1]
    has_reasoning = bool(last.reasoning_content or last.reasoning)
    if request.add_generation_prompt:  # it would begin a new message
        raise invalid(where, "add_generation_prompt must not be true with it")
    if last.role != "assistant" or last.tool_calls:
        raise invalid(where, "the last message must be the assistant's, without tool calls")
    # reasoning that content follows is complete, and can't go on
    if continued_part == "reasoning_content" and (last.content.text or not has_reasoning):
        raise invalid(where, "the last message must have reasoning_content and no content")
    if continued_part == "content" and has_reasoning and not last.content.text:
        raise invalid(where, "the last message must have content")


def _conversation(wire: Sequence[WireMessage]) -> list[Message]:
    """The messages without instructions; results get the name of their tool."""
    tool_names: dict[str, str] = {}  # by the id of the call
    messages: list[Message] = []
    for index, message in enumerate(wire):
        match message.role:
            case "system" | "developer":  # they are in the system message
                continue
            case "user":
                messages.append(Message.user(message.content.text, message.content.images))
            case "assistant":
                calls = tuple(
                    call.to_call(default_id=f"call_{index}_{place}")
                    for place, call in enumerate(message.tool_calls)
                )
                tool_names.update((call.id, call.name) for call in calls)
                reasoning = message.reasoning_content or message.reasoning or ""
                messages.append(Message.assistant(message.content.text, reasoning, calls))
            case "tool" | "function":
                messages.append(_result(message, tool_names, f"messages.{index}"))
    return messages


def _result(message: WireMessage, tool_names: dict[str, str], where: str) -> Message:
    """The result of a call; one of the older role `function` names its tool itself."""
    call_id = message.tool_call_id or ""
    if message.role == "tool" and not call_id:
        raise invalid(f"{where}.tool_call_id", "a tool message needs it")
    name = tool_names.get(call_id) or message.name or ""
    content = message.content
    return Message(Role.TOOL, content.text, tool_call_id=call_id, name=name, images=content.images)


def _choose_tools(request: ChatRequest) -> tuple[list[ToolSpec], ToolChoice | None]:
    """The tools that the model sees, and the calls that the answer must be; raises ApiError."""
    offered = tuple(
        OfferedTool(wire.tool.to_spec(), wire.tool.name, kind=wire.type)
        for wire in request.tools
        if wire.is_served
    )
    single = request.parallel_tool_calls is False
    kept, tool_choice = choose_tools(request.tool_choice, offered, single=single)
    return [tool.spec for tool in kept], tool_choice


def _output_format(request: ChatRequest) -> OutputFormat | None:
    """The format of the answer, None for free text; raises ApiError."""
    value = request.response_format  # an object, or its type alone
    fields = cast(JsonObject, value) if isinstance(value, dict) else {"type": value}
    llama_format = request.plain_format()  # of the fields that llama.cpp's clients send
    if llama_format is not None:
        if fields.get("type") not in (None, "text"):
            raise invalid("grammar" if request.grammar else "json_schema", f"not with a {_FORMAT}")
        return llama_format
    match fields.get("type"):
        case None | "text":
            return None
        case "json_object":  # with a schema, as llama.cpp's clients send it
            return OutputFormat(_schema(fields.get("schema") or {"type": "object"}))
        case "json_schema":
            inner: object = fields.get("json_schema")
            if not isinstance(inner, dict):
                raise invalid(_FORMAT, "json_schema must be an object with a schema")
            nested = cast(JsonObject, inner)
            return OutputFormat(_schema(nested.get("schema")), strict=nested.get("strict") is True)
        case _:
            raise invalid(_FORMAT, "its type must be text, json_object or json_schema")


def _schema(value: object) -> JsonObject:
    """The value, if it is an object; raises ApiError."""
    if not isinstance(value, dict):
        raise invalid(_FORMAT, "the schema must be an object")
    return cast(JsonObject, value)
