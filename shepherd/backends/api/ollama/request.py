"""A session as the body of an /api/chat request."""

from collections.abc import Iterator, Sequence

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.coerce import as_object
from shepherd.backends.api.history import Rules, normalise
from shepherd.backends.api.ollama.window import DEFAULT_NUM_CTX
from shepherd.backends.api.parameters import nearest, sampling_parameters, thinks
from shepherd.backends.api.schemas import declaration, without_references
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.session import Session
from shepherd.structure import OutputFormat

RULES = Rules(user_first=True, user_last=True, merge=True, tool_name=r"\S+")
"""Ollama accepts any conversation; many of its models' templates require alternation."""

_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "penalty_repeat": "repeat_penalty",
    "penalty_freq": "frequency_penalty",
    "penalty_present": "presence_penalty",
    "penalty_last_n": "repeat_last_n",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
    "seed": "seed",
    "stop": "stop",
}
_LEVELS = ("low", "medium", "high")
_ANY_OBJECT: JsonObject = {"type": "object"}


def chat_body(
    session: Session, model: ModelTraits, max_tokens: int, tools: Sequence[JsonObject]
) -> JsonObject:
    """The body; raises InvalidRequestError for a feature that Ollama lacks.

    `tools` is the result of `tools_json`. With `truncate` false, a conversation that does not fit
    is an error, and we evict messages. Otherwise Ollama drops its beginning without a notice.
    Servers before 0.12.6 do not know the field.
    """
    if session.tool_choice is not None and session.tools:
        message = "Ollama can't be told to call a tool; leave out tool_choice"
        raise InvalidRequestError(message, "tool_choice")
    body: JsonObject = {
        "model": model.id,
        "messages": list(_messages(session, thinking=model.thinking)),
        "stream": True,
        "truncate": False,
        "options": _options(session, model, max_tokens),
    }
    body |= _logprobs(session.sampling.logprobs)
    if session.tools:
        body["tools"] = tools
    if model.thinking:
        body["think"] = _think(model, on=thinks(session, model))
    if session.output_format is not None:
        body["format"] = _format(session.output_format)
    return body


def _options(session: Session, model: ModelTraits, max_tokens: int) -> JsonObject:
    """Always sends `num_ctx`: without it Ollama uses its own default, however small."""
    result: JsonObject = {"num_ctx": model.context_size or DEFAULT_NUM_CTX}
    if max_tokens:
        result["num_predict"] = max_tokens
    return result | sampling_parameters(session.sampling, _NAMES, "Ollama", ("logprobs",))


def _logprobs(top: int | None) -> JsonObject:
    if top is None:
        return {}
    return {"logprobs": True} | ({"top_logprobs": top} if top else {})


def _think(model: ModelTraits, *, on: bool) -> bool | str:
    """GPT-OSS always thinks; it has levels, and does not accept `false`."""
    if "gpt-oss" in model.id:
        return nearest(model.effort or ("medium" if on else "low"), _LEVELS)
    return on


def _format(output_format: OutputFormat) -> JsonObject | str:
    if output_format.schema is None:
        raise InvalidRequestError("Ollama does not support grammars; give a JSON schema", "grammar")
    return "json" if output_format.schema == _ANY_OBJECT else output_format.schema


def tools_json(tools: Sequence[ToolSpec]) -> list[JsonObject]:
    """The tools in Ollama's form."""
    return [_tool(tool) for tool in tools]


def _tool(tool: ToolSpec) -> JsonObject:
    """Ollama does not resolve references, and parses properties as objects."""
    parameters = without_references(tool.parameters)
    named = as_object(parameters.get("properties"))
    plain = {name: as_object(part) for name, part in named.items()}
    schema = parameters | {"type": "object", "properties": plain}
    return {"type": "function", "function": declaration(tool, "parameters", schema)}


def _messages(session: Session, *, thinking: bool) -> Iterator[JsonObject]:
    conversation = normalise(session.system_message, session.messages, RULES)
    if conversation.system:
        yield {"role": "system", "content": conversation.system}
    for message in conversation.messages:
        yield _message(message, thinking=thinking)


def _message(message: Message, *, thinking: bool) -> JsonObject:
    result: JsonObject = {"role": message.role.value, "content": message.content}
    if message.role is Role.TOOL:
        result["tool_name"] = message.name
    if message.images:
        result["images"] = [image.base64 for image in message.images]
    if message.role is Role.ASSISTANT:
        if thinking and message.reasoning:
            result["thinking"] = message.reasoning
        if message.tool_calls:
            result["tool_calls"] = _calls(message.tool_calls)
    return result


def _calls(calls: Sequence[ToolCall]) -> list[JsonObject]:
    return [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls]
