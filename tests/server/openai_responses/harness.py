"""Requests of the Responses API, with every answer held to the types of the `openai` package."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, get_args

import httpx
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.patience import PATIENCE
from tests.server.harness import RunningServer

PATH = "/v1/responses"
_EVENTS: dict[str, type[BaseModel]] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind
    for kind in get_args(get_args(ResponseStreamEvent)[0])
}


def post(server: RunningServer[Any], body: dict[str, Any], path: str = "", **headers: str) -> Any:
    """The response to a request, as httpx has it."""
    body = {"input": "hi"} | body
    return httpx.post(f"{server.url}{PATH}{path}", json=body, headers=headers, timeout=PATIENCE)


def created(server: RunningServer[Any], **body: Any) -> dict[str, Any]:
    """A whole response, which fits its type."""
    answer = post(server, body)
    assert answer.status_code == 200, answer.text
    return checked(answer.json())


NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs")
"""Those that a response has in the schema of Open Responses, and may lack in OpenAI's."""


def checked(response: dict[str, Any]) -> dict[str, Any]:
    """A response that fits its type strictly."""
    _adapter(Response).validate_python(response, strict=True)
    assert all(isinstance(response[name], int | float) for name in NUMBERS), response
    return response


def streamed(server: RunningServer[Any], **body: Any) -> list[dict[str, Any]]:
    """The events of a stream, see `checked_events`."""
    answer = post(server, body | {"stream": True})
    assert answer.status_code == 200, answer.text
    return checked_events(answer.text)


def checked_events(text: str, first: int = 0) -> list[dict[str, Any]]:
    """The events in the text of a stream: each fits its type, with numbers from `first` on."""
    events: list[dict[str, Any]] = []
    for block in text.split("\n\n")[:-1]:
        if block.startswith(":"):
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        _adapter(_EVENTS[event["type"]]).validate_python(event, strict=True)
        events.append(event)
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(first, first + len(events)))
    return events


def rebuilt(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items as a client puts them together from the events, which come in their order."""
    items: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items.append({"text": "", "id": event["item"]["id"]})
        elif kind.endswith(".delta"):
            assert items[-1]["id"] == event["item_id"]
            items[-1]["text"] += event["delta"]
        elif kind == "output_item.done":
            items[-1]["item"] = event["item"]
        elif "text" in event:
            assert items[-1]["text"] == event["text"]
    return items


@cache
def _adapter(kind: type[BaseModel]) -> TypeAdapter[BaseModel]:
    """What validates a type; to make one takes longer than to use it."""
    return TypeAdapter(kind)
