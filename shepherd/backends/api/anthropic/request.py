"""A session as a request to the Messages API."""

import json
from collections.abc import Sequence
from typing import Any, cast

from shepherd import errors, images, json_text
from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.anthropic.dialect import (
    Dialect,
    assistant_blocks,
    dialect_of,
    effort_of,
    keeps_thoughts,
    thinking_of,
)
from shepherd.backends.api.history import Rules, Turn, normalise, turns
from shepherd.backends.api.parameters import without_references
from shepherd.messages import JsonObject, Message, Role, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session

SAMPLING_PARAMETERS = ("temperature", "top_p", "top_k")


USUAL_LIMIT = 8192
"""The required `max_tokens` for a model with an unknown limit."""


def output_limit(max_tokens: int, model: ModelTraits, dialect: Dialect) -> int:
    """The `max_tokens` to send: the requested number or the model's limit, within the context.

    Without a number, half of a known context is reserved for the conversation.
    """
    limit = model.output_limit or dialect.output_limit
    if max_tokens > 0:
        return min(max_tokens, limit or max_tokens, model.context_size or max_tokens)
    limit = limit or USUAL_LIMIT
    if not model.context_size:
        return limit
    return max(1, min(limit, model.context_size // 2))


def sampling_of(sampling: Sampling, dialect: Dialect, *, thinking: bool) -> JsonObject:
    """The sampling parameters that the model accepts; settings for other models are left out.

    A request with thinking has none of them. Raises InvalidRequestError for a value out of range.
    """
    result: JsonObject = {}
    if sampling.stop:
        if not all(text.strip() for text in sampling.stop):
            message = "stop: this API does not accept whitespace only; leave it out"
            raise errors.InvalidRequestError(f"{message} for this provider", "stop")
        result["stop_sequences"] = list(sampling.stop)
    if thinking or not dialect.sampling:
        return result
    if sampling.temperature is not None:
        result["temperature"] = _ranged("temperature", sampling.temperature)
    if sampling.top_p is not None and not (dialect.one_sampler and "temperature" in result):
        result["top_p"] = _ranged("top_p", sampling.top_p)
    if sampling.top_k:
        result["top_k"] = sampling.top_k
    return result


def _ranged(name: str, value: float) -> float:
    """The parameter's value; raises InvalidRequestError if the API refuses it."""
    if not 0.0 <= value <= 1.0:
        message = f"{name} must be between 0.0 and 1.0 for this API, got {value}"
        raise errors.InvalidRequestError(message, name)
    return value


_KEPT = ("title", "description", "enum", "const", "required")
_FORMATS = (
    *("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6"),
    "uuid",
)
_PARTS = ("type", "properties", "additionalProperties", "items", "anyOf", "oneOf", "allOf")
_IGNORED = ("$schema", "$id", "default", "examples", "$comment")


class _OpenError(Exception):
    """A schema has a part that accepts any value, which the API can't express."""


def enforced(output_format: OutputFormat, *, formats: bool) -> JsonObject | None:
    """The `output_config.format` that enforces the format; None if only a prompt can ask for it.

    `formats`: whether the model supports schemas. Bounds of numbers and lengths go into the
    descriptions. Raises InvalidRequestError for a grammar, and for a strict schema that can't be
    enforced.
    """
    if output_format.schema is None:
        message = "This API has no grammars; ask for JSON with a schema instead"
        raise errors.InvalidRequestError(message, "grammar")
    lost: list[str] = []
    try:
        schema = _narrowed(without_references(output_format.schema), lost) if formats else None
    except _OpenError:
        schema = None
    if output_format.strict and (schema is None or lost):
        what = f" {lost[0]!r}" if schema is not None else " all of it"
        message = f"This schema can't be enforced here: the model can't be held to{what}"
        raise errors.InvalidRequestError(message, "response_format")
    return None if schema is None else {"type": "json_schema", "schema": schema}


def in_words(output_format: OutputFormat) -> str:
    """The instruction to a model that does not support schemas."""
    schema = json.dumps(output_format.schema, ensure_ascii=False)
    return f"Answer with JSON only, no other text, that fits this JSON schema:\n{schema}"


def _narrowed(schema: Any, lost: list[str]) -> JsonObject:
    """The schema in the API's keywords; the others go to `lost` and into the description."""
    if not isinstance(schema, dict):
        raise _OpenError
    source = cast(JsonObject, schema)
    result = {key: source[key] for key in _KEPT if key in source} | _shape(source, lost)
    if not result.keys() - {"title", "description", "required"}:  # these limit no value
        raise _OpenError
    known = {*_KEPT, *_PARTS, *_IGNORED, *result}
    hints = {key: value for key, value in source.items() if key not in known}
    if hints:
        lost.extend(hints)
        parts = [str(source.get("description", "")), json.dumps(hints, ensure_ascii=False)]
        result["description"] = " ".join(text for text in parts if text)
    return result


def _shape(schema: JsonObject, lost: list[str]) -> JsonObject:
    """The type and the parts of a schema, in the API's keywords; what it lacks goes to `lost`."""
    kind = schema.get("type")
    if isinstance(kind, list):  # ["string", "null"], say
        kinds = cast(list[Any], kind)
        return {"anyOf": [_narrowed({**schema, "type": one}, lost) for one in kinds]}
    result: JsonObject = {} if kind is None else {"type": kind}
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            name = "anyOf" if key == "oneOf" else key
            result[name] = [_narrowed(part, lost) for part in schema[key]]
    if kind == "object":
        result |= _object(schema, lost)
    if kind == "array":
        result["items"] = _narrowed(schema.get("items"), lost)
        if schema.get("minItems") in (0, 1):  # the API has no other minimum
            result["minItems"] = schema["minItems"]
    if schema.get("format") in _FORMATS:
        result["format"] = schema["format"]
    return result


def _object(schema: JsonObject, lost: list[str]) -> JsonObject:
    """An object; those of the API allow only named properties, and need at least one."""
    named = json_text.as_object(schema.get("properties"))
    others = schema.get("additionalProperties")
    if isinstance(others, dict) or not named:
        raise _OpenError
    if others is True:
        lost.append("additionalProperties")
    return {
        "properties": {name: _narrowed(part, lost) for name, part in named.items()},
        "additionalProperties": False,
    }


_MARK = {"type": "ephemeral"}


def mark(
    tools: Sequence[JsonObject], system: Sequence[JsonObject], messages: Sequence[JsonObject]
) -> None:
    """Mark where the API's cache of prompts may end; it allows four places.

    They are the last tool, the system message, and the user's last two turns.
    """
    users = [message["content"] for message in messages if message["role"] == "user"]
    for blocks in (tools, system, *users[-2:]):
        if blocks:
            blocks[-1]["cache_control"] = dict(_MARK)


ERROR_PREFIX = "Error:"
"""The beginning of the result of a failed tool call."""

_RULES = Rules(user_first=True, user_last=True, call_id=r"[A-Za-z0-9_-]{1,64}")


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
    """One side's turn; `thinker` is the model whose thoughts go back, "" for nobody's."""
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


def _image(image: images.Image) -> JsonObject:
    source = {"type": "base64", "media_type": image.media_type, "data": image.base64}
    return {"type": "image", "source": source}


def _result(message: Message) -> JsonObject:
    """The result of a call, marked as an error if the tool has failed."""
    result: JsonObject = {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": message.content,
    }
    if message.content.startswith(ERROR_PREFIX):
        result["is_error"] = True
    return result


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _tool(spec: ToolSpec) -> JsonObject:
    """A tool's declaration; the API requires that its input is an object."""
    tool: JsonObject = {"name": spec.name, "input_schema": {**spec.parameters, "type": "object"}}
    if spec.description:
        tool["description"] = spec.description
    return tool


def _recalled(messages: Sequence[Message]) -> list[ToolSpec]:
    """Stand-ins for the called tools: the API requires them even if no tools are offered."""
    names = dict.fromkeys(call.name for message in messages for call in message.tool_calls)
    return [ToolSpec(name, "No longer on offer.") for name in names]


def _choice(session: Session, dialect: Dialect, model: str) -> JsonObject | None:
    """The request's `tool_choice`; None leaves it to the model whether it calls a tool.

    Raises InvalidRequestError if a call is required, and the model can't be made to call.
    """
    choice = session.tool_choice
    if not session.tools:  # the request has only stand-ins for earlier tools
        return {"type": "none"}
    if choice is None:
        return None
    if not dialect.forced_calls:
        message = f"{model} can't be made to call a tool: leave tool_choice to the model"
        raise errors.InvalidRequestError(message, "tool_choice")
    result: JsonObject = {"type": "tool", "name": choice.name} if choice.name else {"type": "any"}
    if choice.single or choice.name:
        result["disable_parallel_tool_use"] = True
    return result


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
