"""A session as a request to the Messages API."""

from collections.abc import Sequence

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.anthropic.dialect import Dialect, dialect_of
from shepherd.backends.api.anthropic.formats import enforced, in_words
from shepherd.backends.api.anthropic.options import output_limit, sampling_of, tool_choice_of
from shepherd.backends.api.anthropic.replay import assistant_blocks
from shepherd.backends.api.anthropic.thinking import effort_of, keeps_thoughts, thinking_of
from shepherd.backends.api.history import Rules, Turn, normalise, turns
from shepherd.images import Image
from shepherd.messages import JsonObject, Message, Role, ToolSpec
from shepherd.session import Session

_MARK = {"type": "ephemeral"}


def mark(
    tools: Sequence[JsonObject], system: Sequence[JsonObject], messages: Sequence[JsonObject]
) -> None:
    """Mark a request's parts: the last tool, the system message, the user's last two turns."""
    users = [message["content"] for message in messages if message["role"] == "user"]
    for blocks in (tools, system, *users[-2:]):
        if blocks:
            blocks[-1]["cache_control"] = dict(_MARK)


ERROR_PREFIX = "Error:"
"""The beginning of the result of a failed tool call."""

_RULES = Rules(
    user_first=True,
    user_last=True,
    call_id=r"[A-Za-z0-9_-]{1,64}",
    tool_name=r"[A-Za-z0-9_-]{1,64}",
)


def chat_body(session: Session, model: ModelTraits, max_tokens: int) -> JsonObject:
    """The body of the request; raises InvalidRequestError for a feature that the model lacks."""
    dialect = dialect_of(model.id)
    conversation = normalise(session.system_message, session.messages, _RULES)
    history = turns(conversation.messages)
    limit = output_limit(max_tokens, model, dialect)
    thinking = thinking_of(session, model, dialect, limit, history)
    messages = [_message(turn, model.id if keeps_thoughts(thinking) else "") for turn in history]
    system = [_text(conversation.system)] if conversation.system else []
    tools = [_tool(spec) for spec in session.tools or _recalled(conversation.messages)]
    mark(tools, system, messages)
    body: JsonObject = {
        "model": model.id,
        "max_tokens": limit,
        "stream": True,
        "messages": messages,
        "system": system,
        "tools": tools,
        "thinking": thinking,
        "tool_choice": _choice(session, dialect, model.id) if tools else None,
        "output_config": _output_config(session, dialect, messages),
    }
    if effort := effort_of(model, dialect):
        body["output_config"] = {**(body["output_config"] or {}), "effort": effort}
    body |= sampling_of(session.sampling, dialect, thinking=keeps_thoughts(thinking))
    return {key: value for key, value in body.items() if value not in (None, [])}


def _message(turn: Turn, thinker: str) -> JsonObject:
    if turn.role is Role.ASSISTANT:
        blocks = [block for m in turn.messages for block in assistant_blocks(m, thinker)]
        return {"role": "assistant", "content": blocks}
    return {"role": "user", "content": [b for m in turn.messages for b in _user_blocks(m)]}


def _user_blocks(message: Message) -> list[JsonObject]:
    """Images come first: Claude reads them best before the question about them."""
    if message.role is Role.TOOL:
        return [_result(message)]
    texts = [_text(message.content)] if message.content else []
    return [*map(_image, message.images), *texts]


def _image(image: Image) -> JsonObject:
    source = {"type": "base64", "media_type": image.media_type, "data": image.base64}
    return {"type": "image", "source": source}


def _result(message: Message) -> JsonObject:
    result: JsonObject = {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": message.content,
    }
    return result | ({"is_error": True} if message.content.startswith(ERROR_PREFIX) else {})


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _tool(spec: ToolSpec) -> JsonObject:
    tool: JsonObject = {"name": spec.name, "input_schema": {**spec.parameters, "type": "object"}}
    return tool | ({"description": spec.description} if spec.description else {})


def _recalled(messages: Sequence[Message]) -> list[ToolSpec]:
    """Stand-ins for the called tools: the API requires them even if no tools are offered."""
    names = dict.fromkeys(call.name for message in messages for call in message.tool_calls)
    return [ToolSpec(name, "No longer on offer.") for name in names]


def _choice(session: Session, dialect: Dialect, model: str) -> JsonObject | None:
    if not session.tools:
        return {"type": "none"}
    if session.tool_choice is None:
        return None
    return tool_choice_of(session.tool_choice, dialect, model)


def _output_config(
    session: Session, dialect: Dialect, messages: Sequence[JsonObject]
) -> JsonObject | None:
    """The format to enforce; if it can't be enforced, the last message asks for it."""
    output_format = session.output_format
    if output_format is None:
        return None
    enforceable = enforced(output_format, formats=dialect.formats)
    if enforceable is not None:
        return {"format": enforceable}
    messages[-1]["content"].append(_text(in_words(output_format)))
    return None
