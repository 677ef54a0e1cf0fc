"""Gemini's contents as the messages of a session."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import cast

from shepherd.backends.base import ModelInfo
from shepherd.errors import ImageError
from shepherd.images import check_count
from shepherd.messages import JsonObject, Message, Role, ToolCall
from shepherd.server.errors import invalid
from shepherd.server.gemini.contents import Content, FunctionResponse, Part, images_of
from shepherd.server.gemini.signatures import thought_of
from shepherd.server.seal import Seal
from shepherd.server.wire.content import CallHistory

_RESULT_KEYS = ("output", "result", "content", "return_value")
"""The names that Google, LiteLLM and pydantic-ai give to a result that is not an object."""


def conversation(contents: Sequence[Content], seal: Seal) -> list[Message]:
    """The messages. Contents of the model that follow each other are one answer.

    Some clients keep each event of a stream as a content.
    """
    history = CallHistory()
    messages: list[Message] = []
    for is_answer, run in groupby(contents, lambda content: content.role == "model"):
        if is_answer:
            parts = [part for content in run for part in content.parts]
            messages.append(_answer(parts, history, seal))
        else:
            messages += [message for content in run for message in _input(content, history)]
    return messages


def _answer(parts: Sequence[Part], history: CallHistory, seal: Seal) -> Message:
    texts = [part.text or "" for part in parts if not part.thought]
    thoughts = [part.text or "" for part in parts if part.thought]
    wire = [part.function_call for part in parts if part.function_call is not None]
    calls = tuple(ToolCall(c.id or history.next_id(), c.name, c.args) for c in wire)
    history.add(calls)
    message = Message.assistant("".join(texts), "".join(thoughts), calls)
    words = (part.thought_signature for part in parts if part.thought_signature)
    known = (thought_of(seal, word) for word in words)
    thought = next(filter(None, known), None)
    return thought.restored(message) if thought else message


def _input(content: Content, history: CallHistory) -> Iterator[Message]:
    """The results in a content, which belong behind their calls, then its text and images."""
    results = [p.function_response for p in content.parts if p.function_response is not None]
    for result in results:
        yield _result(result, history)
    text = "\n".join(part.text for part in content.parts if part.text)
    images = images_of(content.parts)
    if text or images or not results:
        yield Message.user(text, images)


def _result(wire: FunctionResponse, history: CallHistory) -> Message:
    call_id, name = history.answered(wire.id or "", wire.name or "")
    text, images = _result_text(wire.response), images_of(wire.parts)
    return Message(Role.TOOL, text, tool_call_id=call_id, name=name, images=images)


def _result_text(response: object) -> str:
    """The text or the JSON of a result; clients wrap it in an object."""
    value = response
    if isinstance(response, dict) and len(fields := cast(JsonObject, response)) == 1:
        value = next((fields[name] for name in _RESULT_KEYS if name in fields), fields)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def check_contents(contents: Sequence[Content], model: ModelInfo) -> None:
    """Raise ApiError for parts in a content of a wrong role, and images that can't be seen."""
    for index, content in enumerate(contents):
        where = f"contents.{index}.parts"
        if content.role == "model":
            if any(part.function_response for part in content.parts):
                raise invalid(where, "functionResponse goes with contents of the user")
            if images_of(content.parts):
                raise invalid(where, "images go with contents of the user and with results")
        elif any(part.function_call for part in content.parts):
            raise invalid(where, "functionCall goes with contents of the model")
        _check_images(content, model, where)


def _check_images(content: Content, model: ModelInfo, where: str) -> None:
    images = [*images_of(content.parts)]
    for part in content.parts:
        images += images_of(part.function_response.parts if part.function_response else ())
    if images and model.vision is False:
        reason = f"images are not supported: {model.id} reads text only; leave them out"
        raise invalid(where, reason)
    try:
        check_count(images)
    except ImageError as error:
        raise invalid(where, str(error)) from error
