"""A session as a request for chat completions."""

from shepherd.backends.api.effort import thinks
from shepherd.backends.api.normalise import normalise
from shepherd.backends.api.openai.chat_sampling import chat_sampling
from shepherd.backends.api.openai.dialects import Dialect, Switch
from shepherd.backends.api.openai.formats import asking_for_json, response_format, tool_choice
from shepherd.backends.api.openai.models import chat_effort, reasons
from shepherd.backends.api.wire import ModelTraits
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.session import Session


def chat_body(
    session: Session, model: ModelTraits, max_tokens: int, dialect: Dialect, wire: str
) -> JsonObject:
    """The body; `wire` is the name under which `Message.extra` keeps what goes back.

    Raises InvalidRequestError for a parameter that the server has not.
    """
    messages = _messages(session, dialect, wire, thinking=thinks(session, model))
    body: JsonObject = {"model": model.id, "messages": messages, "stream": True}
    if dialect.usage_option:
        body["stream_options"] = {"include_usage": True}
    if max_tokens > 0:
        body[model.limit_parameter or _limit_parameter(model.id)] = max_tokens
    if session.tools:
        body["tools"] = [_tool(spec) for spec in session.tools]
    body |= tool_choice(session, _named_choice(session))
    body |= response_format(session.output_format, dialect)
    body |= _thinking(session, model, dialect)
    return body | chat_sampling(session.sampling, model.id, dialect)


def _limit_parameter(model: str) -> str:
    return "max_completion_tokens" if reasons(model) else "max_tokens"


def _messages(session: Session, dialect: Dialect, wire: str, *, thinking: bool) -> list[JsonObject]:
    conversation = normalise(session.system_message, session.messages, dialect.rules)
    system = conversation.system
    if not dialect.grammar:
        system = asking_for_json(system, session.output_format)
    head: list[JsonObject] = [{"role": "system", "content": system}] if system else []
    thoughts = dialect.thoughts if thinking or not dialect.every_thought else ()
    return head + [_message(m, dialect, thoughts, wire) for m in conversation.messages]


def _message(
    message: Message, dialect: Dialect, thoughts: tuple[str, ...], wire: str
) -> JsonObject:
    if message.role is Role.TOOL:
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if message.role is not Role.ASSISTANT:
        return {"role": "user", "content": _content(message)}
    body: JsonObject = {"role": "assistant", "content": message.content or None}
    if message.tool_calls:
        body["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.reasoning or dialect.every_thought:
        body |= dict.fromkeys(thoughts, message.reasoning)
    kept = message.extra.get(wire, {})
    return body | {name: kept[name] for name in dialect.kept if name in kept}


def _content(message: Message) -> str | list[JsonObject]:
    """Plain text where there are no images: servers that read text only know nothing else."""
    if not message.images:
        return message.content
    parts: list[JsonObject] = [
        {"type": "image_url", "image_url": {"url": image.data_url}} for image in message.images
    ]
    return parts + ([{"type": "text", "text": message.content}] if message.content else [])


def _call(call: ToolCall) -> JsonObject:
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}


def _tool(spec: ToolSpec) -> JsonObject:
    function: JsonObject = {"name": spec.name, "parameters": spec.parameters}
    if spec.description:
        function["description"] = spec.description
    return {"type": "function", "function": function}


def _named_choice(session: Session) -> JsonObject:
    name = session.tool_choice.name if session.tool_choice else ""
    return {"type": "function", "function": {"name": name}}


def _thinking(session: Session, model: ModelTraits, dialect: Dialect) -> JsonObject:
    """The fields that say whether the model is to reason."""
    thinking = thinks(session, model)
    if dialect.switch is Switch.UNSAID:
        return {}
    if dialect.switch is Switch.THINKING:
        return {"thinking": {"type": "enabled" if thinking else "disabled"}}
    fields: JsonObject = {}
    if dialect.switch is Switch.TEMPLATE:
        fields["chat_template_kwargs"] = {"enable_thinking": thinking}
    wanted = model.effort or ("medium" if thinking else "")
    effort = chat_effort(model.id, wanted, tools=bool(session.tools))
    known = model.thinking or (model.effort and dialect.switch is Switch.TEMPLATE)
    if effort is None and thinking and known:
        effort = wanted
    return fields | ({"reasoning_effort": effort} if effort else {})
