"""Anthropic's client, and its types as a check of all that the server sends."""

import json
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import anthropic
import httpx
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from shepherd.messages import JsonObject
from tests.patience import PATIENCE
from tests.server.harness import RunningServer

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
HI: list[Any] = [{"role": "user", "content": "hi"}]
EVENTS = TypeAdapter[Any](RawMessageStreamEvent)
READ: JsonObject = {
    "name": "read_file",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}
THINK = {"type": "enabled", "budget_tokens": 1024}
VERSION = {"anthropic-version": "2023-06-01"}

Server: TypeAlias = RunningServer[Any]


def client_of(server: Server, key: str = "none") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0)


def ask(client: anthropic.Anthropic, **options: Any) -> Message:
    """A whole answer; says hi if `options` has no messages."""
    wanted: Any = {"model": "claude", "max_tokens": 100, "messages": HI} | options
    create: Any = client.messages.create
    answer: Message = create(**wanted)
    Message.model_validate(answer.to_dict())
    return answer


def stream(client: anthropic.Anthropic, **options: Any) -> Message:
    """The answer that the client joins of a stream."""
    wanted: Any = {"model": "claude", "max_tokens": 100, "messages": HI} | options
    opening: Any = client.messages.stream
    with opening(**wanted) as events:
        return events.get_final_message()


def post(
    server: Server, body: Any, path: str = MESSAGES, headers: dict[str, str] | None = None
) -> httpx.Response:
    usual: JsonObject = {"max_tokens": 100, "messages": HI}
    wanted: Any = {**usual, **cast(JsonObject, body)} if isinstance(body, dict) else body
    return httpx.post(server.url + path, json=wanted, headers=headers, timeout=PATIENCE)


def events_of(text: str) -> list[JsonObject]:
    """The events of a stream; each has the name of its type and is valid for the client's types."""
    events: list[JsonObject] = []
    for part in filter(None, text.split("\n\n")):
        head, _, data = part.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert head == f"event: {event['type']}"
        if event["type"] != "ping":
            EVENTS.validate_python(event)
            events.append(event)
    check_order(events)
    return events


def check_order(events: Sequence[JsonObject]) -> None:
    """One start, then whole blocks by their index, then one end."""
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    index, is_open = -1, False
    for event in events[1:-2]:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                index, is_open = index + 1, True
            case "content_block_delta":
                assert is_open
            case "content_block_stop":
                assert is_open
                is_open = False
            case other:
                raise AssertionError(other)
        assert event["index"] == index
    assert not is_open


def without_ids(message: Message) -> JsonObject:
    """The content and the end of an answer, without the ids of calls."""
    blocks = [{k: v for k, v in b.to_dict().items() if k != "id"} for b in message.content]
    return {
        "content": blocks,
        "stop": (message.stop_reason, message.stop_sequence),
        "usage": message.usage.to_dict(),
    }
