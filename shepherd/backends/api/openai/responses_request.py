"""A session as a request of the responses API."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.coerce import as_count, as_object, as_objects, as_text
from shepherd.backends.api.history import Rules, normalise
from shepherd.backends.api.openai.common import asking_for_json, text_format, tool_choice
from shepherd.backends.api.openai.dialects import effort_of, reasons
from shepherd.backends.api.parameters import sampling_parameters, thinks
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.session import Session

API_NAME = "openai-responses"
"""The name under which `Message.extra` keeps the items of an answer."""

MIN_TOKENS = 16
"""The smallest limit that the API accepts."""

_RULES = Rules(call_id=r"[A-Za-z0-9_-]{1,64}")
_SAMPLING = {"temperature": "temperature", "top_p": "top_p"}
_FIXED = ("temperature", "top_p")


def responses_body(session: Session, model: ModelTraits, max_tokens: int) -> JsonObject:
    """The body; nothing is stored there, so reasoning is sent encrypted in both directions.

    Raises InvalidRequestError for a parameter that the API lacks.
    """
    conversation = normalise(session.system_message, session.messages, _RULES)
    system = asking_for_json(conversation.system, session.output_format)
    items = [item for m in conversation.messages for item in _items(m)]
    body: JsonObject = {"model": model.id, "input": items, "stream": True, "store": False}
    if system:
        body["instructions"] = system
    if max_tokens > 0:
        body["max_output_tokens"] = max(max_tokens, MIN_TOKENS)
    if session.tools:
        body["tools"] = [_tool(spec) for spec in session.tools]
    named = {"type": "function", "name": session.tool_choice.name if session.tool_choice else ""}
    body |= tool_choice(session, named)
    body |= text_format(session.output_format)
    return body | _options(session, model)


def _options(session: Session, model: ModelTraits) -> JsonObject:
    """Reasoning, sampling, and the answer's fields beside its text."""
    sampling, options, include = session.sampling, JsonObject(), list[str]()
    if reasons(model.id) or model.thinking:
        include.append("reasoning.encrypted_content")
        options["reasoning"] = _reasoning(session, model)
    if reasons(model.id):
        sampling = replace(sampling, **dict.fromkeys(_FIXED))
    elif sampling.logprobs is not None:
        include.append("message.output_text.logprobs")
        options["top_logprobs"] = sampling.logprobs
        sampling = replace(sampling, logprobs=None)
    options |= {"include": include} if include else {}
    return options | sampling_parameters(sampling, _SAMPLING, API_NAME)


def _reasoning(session: Session, model: ModelTraits) -> JsonObject:
    thinking = thinks(session, model)
    effort = model.effort or ("medium" if thinking else "")
    if reasons(model.id):
        effort = effort_of(model.id, effort)
    return {"effort": effort or "none"} | ({"summary": "auto"} if thinking else {})


def _tool(spec: ToolSpec) -> JsonObject:
    tool: JsonObject = {"type": "function", "name": spec.name, "parameters": spec.parameters}
    if spec.description:
        tool["description"] = spec.description
    return tool | {"strict": False}


def _items(message: Message) -> Iterator[JsonObject]:
    if message.role is Role.TOOL:
        output = {"call_id": message.tool_call_id, "output": message.content}
        yield {"type": "function_call_output", **output}
    elif message.role is Role.ASSISTANT:
        kept = as_objects(message.extra.get(API_NAME, {}).get("items"))
        yield from _replayed(message, kept) if _fits(message, kept) else _plain(message, kept)
    else:
        yield {"type": "message", "role": "user", "content": _content(message)}


def _content(message: Message) -> str | list[JsonObject]:
    if not message.images:
        return message.content
    parts: list[JsonObject] = [
        {"type": "input_image", "image_url": image.data_url, "detail": "auto"}
        for image in message.images
    ]
    return parts + ([{"type": "input_text", "text": message.content}] if message.content else [])


def _fits(message: Message, kept: Sequence[JsonObject]) -> bool:
    """Whether the kept items still match the message."""
    lengths = [as_count(item.get("length")) or 0 for item in kept if _is(item, "message")]
    calls = [item for item in kept if _is(item, "function_call")]
    return sum(lengths) == len(message.content) and len(calls) == len(message.tool_calls)


def _replayed(message: Message, kept: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """The items in the order in which they arrived."""
    calls, start = iter(message.tool_calls), 0
    for item in kept:
        if _is(item, "message"):
            end = start + (as_count(item.get("length")) or 0)
            if end > start:
                yield _output_message(message.content[start:end], as_text(item.get("phase")))
            start = end
        elif _is(item, "function_call"):
            yield _call(next(calls))
        elif _is_reasoning(item):
            yield item


def _plain(message: Message, kept: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """The items of an answer of another model, or of a changed one."""
    yield from filter(_is_reasoning, kept)
    if message.content:
        yield _output_message(message.content, "")
    yield from map(_call, message.tool_calls)


def _is(item: JsonObject, kind: str) -> bool:
    return item.get("type") == kind


def _is_reasoning(item: JsonObject) -> bool:
    """Whether the API can read it: it keeps no copy of an item that is not encrypted."""
    return _is(item, "reasoning") and bool(as_text(item.get("encrypted_content")))


def _output_message(content: str, phase: str) -> JsonObject:
    item: JsonObject = {"type": "message", "role": "assistant", "content": content}
    return item | ({"phase": phase} if phase else {})


def _call(call: ToolCall) -> JsonObject:
    fields = {"call_id": call.id, "name": call.name, "arguments": call.arguments_json}
    return {"type": "function_call", **fields}


def kept_item(item: JsonObject, length: int) -> JsonObject | None:
    """The data to keep of an answer's item; `length` is that of its text.

    Reasoning is kept unchanged. Of other items, only data that the message itself lacks is kept.
    """
    kind = as_text(item.get("type"))
    if kind == "reasoning":
        texts = [as_text(part.get("text")) for part in as_objects(item.get("summary"))]
        names = ("type", "id", "encrypted_content")
        kept: JsonObject = {name: text for name in names if (text := as_text(item.get(name)))}
        kept["summary"] = [{"type": "summary_text", "text": text} for text in texts]
        return kept if "id" in kept and _is_reasoning(kept) else None
    if kind == "message":
        phase = as_text(as_object(item).get("phase"))
        return {"type": kind, "length": length} | ({"phase": phase} if phase else {})
    return {"type": kind} if kind == "function_call" else None
