"""A conversation as Gemini's contents: turns of user and model, made of parts."""

import re
from collections.abc import Iterator, Mapping, Sequence

from shepherd.backends.api.coerce import as_count, as_object, as_objects, as_text
from shepherd.backends.api.gemini.traits import wants_signatures
from shepherd.backends.api.history import Rules, Turn, turns
from shepherd.images import Image
from shepherd.messages import JsonObject, Message, Role, ToolCall

RULES = Rules(user_first=True, user_last=True, tool_name=r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")

API_NAME = "gemini"
"""The name under which `Message.extra` and `ToolCall.extra` keep Gemini's data."""

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""Replaces the signature of a call that Gemini did not make.

Documented for conversations of other models, among the questions at the end of
https://ai.google.dev/gemini-api/docs/thought-signatures; Google's own gemini-cli sends it too.
"""

_NAME_BEGINS = re.compile(r"[A-Za-z_]")


def to_contents(messages: Sequence[Message], model: str) -> list[JsonObject]:
    """The contents of a normalised conversation, for this model."""
    calls = {call.id: call for message in messages for call in message.tool_calls}
    signed = wants_signatures(model)
    return [_content(turn, calls, signed=signed) for turn in turns(messages)]


def _content(turn: Turn, calls: Mapping[str, ToolCall], *, signed: bool) -> JsonObject:
    if turn.role is Role.ASSISTANT:
        parts = [p for message in turn.messages for p in _model_parts(message, signed=signed)]
        return {"role": "model", "parts": parts}
    return {"role": "user", "parts": [p for m in turn.messages for p in _user_parts(m, calls)]}


def _user_parts(message: Message, calls: Mapping[str, ToolCall]) -> list[JsonObject]:
    if message.role is Role.TOOL:
        return [_result(message, calls)]
    texts: list[JsonObject] = [{"text": message.content}] if message.content else []
    return [*map(_image, message.images), *texts]


def _image(image: Image) -> JsonObject:
    return {"inlineData": {"mimeType": image.media_type, "data": image.base64}}


def _result(message: Message, calls: Mapping[str, ToolCall]) -> JsonObject:
    """A result goes back under its call's name, and under the id from Gemini."""
    call = calls[message.tool_call_id]
    response: JsonObject = {"name": _name(call), "response": {"output": message.content}}
    return {"functionResponse": _id(call) | response}


def _model_parts(message: Message, *, signed: bool) -> Iterator[JsonObject]:
    yield from _text_parts(message)
    for index, call in enumerate(message.tool_calls):
        part: JsonObject = {
            "functionCall": _id(call) | {"name": _name(call), "args": call.arguments}
        }
        if signature := as_text(_kept(call.extra).get("thoughtSignature")):
            part["thoughtSignature"] = signature
        elif signed and index == 0:  # Gemini signs only the first of several calls in one answer
            part["thoughtSignature"] = SKIP_SIGNATURE
        yield part


def _text_parts(message: Message) -> Iterator[JsonObject]:
    """The text; parts that Gemini has signed keep their form and place."""
    text, done = message.content, 0
    for entry in _signed(message):
        part, at = as_object(entry["part"]), int(entry["at"])
        own = "" if part.get("thought") else as_text(part.get("text"))
        if at < done or not text.startswith(own, at):
            break  # the text was changed after it was signed
        if at > done:
            yield {"text": text[done:at]}
        yield part
        done = at + len(own)
    if done < len(text):
        yield {"text": text[done:]}


def _signed(message: Message) -> list[JsonObject]:
    """The parts that the decoder kept; an empty list if a session file holds something else."""
    entries = as_objects(_kept(message.extra).get("signed"))
    return [entry for entry in entries if _is_signed(entry)]


def _is_signed(entry: JsonObject) -> bool:
    signature = as_text(as_object(entry.get("part")).get("thoughtSignature"))
    return bool(signature) and as_count(entry.get("at")) is not None


def _kept(extra: Mapping[str, JsonObject]) -> JsonObject:
    return extra.get(API_NAME, {})


def _id(call: ToolCall) -> JsonObject:
    """Older models neither send nor receive ids of calls."""
    call_id = as_text(_kept(call.extra).get("id"))
    return {"id": call_id} if call_id else {}


def _name(call: ToolCall) -> str:
    return call.name if _NAME_BEGINS.match(call.name) else f"_{call.name}"
