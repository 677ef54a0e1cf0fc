"""Streamed answers of the Messages API, written down."""

from collections.abc import Iterable, Sequence

from shepherd.backends.api import stream
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.messages import JsonObject
from tests.backends.api.anthropic.schema import check_event

MODEL = "claude-sonnet-5-5"


def started(model: str = MODEL, **usage: int) -> JsonObject:
    counts = {"input_tokens": 10, "output_tokens": 1} | usage
    message: JsonObject = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": counts,
    }
    return {"type": "message_start", "message": message}


def ended(reason: str = "end_turn", details: JsonObject | None = None) -> list[JsonObject]:
    delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]


def block(index: int, content: JsonObject, deltas: Iterable[JsonObject]) -> list[JsonObject]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[JsonObject]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, deltas)


def thought(index: int, signature: str, *pieces: str) -> list[JsonObject]:
    deltas: list[JsonObject] = [{"type": "thinking_delta", "thinking": p} for p in pieces]
    deltas.append({"type": "signature_delta", "signature": signature})
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)


def redacted(index: int, data: str) -> list[JsonObject]:
    return block(index, {"type": "redacted_thinking", "data": data}, [])


def call(index: int, id: str, name: str, *pieces: str) -> list[JsonObject]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, deltas)


def answer(*blocks: Sequence[JsonObject], model: str = MODEL) -> list[JsonObject]:
    """A whole stream, each event checked against the SDK's types."""
    calls = any(e.get("content_block", {}).get("type") == "tool_use" for b in blocks for e in b)
    events = [
        started(model),
        {"type": "ping"},
        *(event for events in blocks for event in events),
        *ended("tool_use" if calls else "end_turn"),
    ]
    return [check_event(event) for event in events]


def deltas_of(events: Iterable[JsonObject], *, names: bool = True) -> list[stream.Delta]:
    """What the decoder makes of a stream, with or without the names of its events."""
    decoder = AnthropicAdapter().decoder()
    return [
        delta for event in events for delta in decoder.feed(event["type"] if names else "", event)
    ]
