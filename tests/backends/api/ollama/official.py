"""Ollama's own types as the judge of what we send and feed."""

import json

import ollama._types as types
from ollama import ChatResponse, Message

from shepherd.messages import JsonObject

_MESSAGE = set(Message.model_fields)
_OPTIONS = set(types.Options.model_fields) | {"min_p"}
_BODY = set(types.ChatRequest.model_fields) | {"truncate"}
"""`min_p` and `truncate` are in the server's api/types.go and not in the package."""


def check_body(body: JsonObject | None) -> list[JsonObject]:
    """The messages of a valid body; unknown fields are refused."""
    assert body is not None
    assert set(body) <= _BODY
    assert set(body["options"]) <= _OPTIONS
    assert body["options"]["num_ctx"] > 0
    types.Options.model_validate(body["options"])
    messages: list[JsonObject] = body["messages"]
    request = types.ChatRequest.model_validate(body | {"messages": [*map(_typed, messages)]})
    assert request.messages
    json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    check_messages(messages)
    return messages


def check_messages(messages: list[JsonObject]) -> None:
    """The user begins and ends, calls are answered at once and in order, no one says nothing."""
    told = [m for m in messages if m["role"] != "system"]
    assert all(m["role"] != "system" for m in messages[1:])
    assert told[0]["role"] == "user"
    assert told[-1]["role"] != "assistant"
    asked: list[str] = []
    before = ""
    for message in told:
        assert set(message) <= _MESSAGE
        assert Message.model_validate(_typed(message)).model_dump().get("images") == (
            message.get("images")
        )
        role = message["role"]
        assert message["content"].strip() or message.get("tool_calls") or message.get("images")
        if role == "tool":
            assert message["tool_name"] == asked.pop(0)
        else:
            assert not asked
            assert role != before
            asked = [call["function"]["name"] for call in message.get("tool_calls", [])]
        before = role
    assert not asked


def _typed(message: JsonObject) -> JsonObject:
    """The message as the package's callers give it: it makes base64 of `Image`s when it sends."""
    images = [types.Image(value=data) for data in message.get("images", [])]
    return message | ({"images": images} if images else {})


def line(content: str = "", **more: object) -> JsonObject:
    """A line of an answer, which Ollama's type takes."""
    message: JsonObject = {"role": "assistant", "content": content}
    message |= {k: more.pop(k) for k in ("thinking", "tool_calls") if k in more}
    made: JsonObject = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message}
    made |= {"done": False, **more}
    ChatResponse.model_validate(made)
    return made
