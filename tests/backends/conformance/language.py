"""Events as bytes, and what all vendors' checks share."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from shepherd.messages import JsonObject


def compact(value: Any) -> str:
    """JSON without blanks, with letters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sse(data: JsonObject | str, name: str = "") -> bytes:
    """A server-sent event."""
    lead = f"event: {name}\n" if name else ""
    return f"{lead}data: {data if isinstance(data, str) else compact(data)}\n\n".encode()


def line(data: JsonObject) -> bytes:
    """A line of JSON as Go writes it: what HTML or JavaScript could mistake is escaped."""
    text = compact(data)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f"{text}\n".encode()


def halves(text: str) -> tuple[str, str]:
    """The text in two pieces."""
    middle = len(text) // 2
    return text[:middle], text[middle:]


def check_chat(messages: Sequence[JsonObject]) -> None:
    """Each call has its one result right behind its message, in order; nobody says nothing."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        calls: list[JsonObject] = message.get("tool_calls") or []
        waiting = [call["id"] for call in calls]
        assert message["content"] or waiting
    assert not waiting


def check_items(items: Iterable[JsonObject]) -> None:
    """The same of the responses API's items, where calls made together stand together."""
    waiting: list[str] = []
    answered = False
    for item in items:
        if item["type"] == "function_call":
            assert not answered
            waiting.append(item["call_id"])
        elif item["type"] == "function_call_output":
            assert item["call_id"] == waiting.pop(0)
            answered = bool(waiting)
        elif item["type"] == "message":
            assert item["role"] == "assistant" or not waiting
    assert not waiting


def check_turns(messages: Sequence[JsonObject]) -> None:
    """Anthropic's rules: turns alternate from the user on, results come first and are all there."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        assert message["role"] == ("user", "assistant")[index % 2]
        assert message["content"]
        results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting)
        assert all(b["type"] == "tool_result" for b in message["content"][: len(results)])
        waiting = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
    assert not waiting
