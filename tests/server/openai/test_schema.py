"""Answers as OpenAI's published types have them, validated and not only constructed."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.patience import PATIENCE
from tests.server.engine import Engine, engine
from tests.server.harness import CHAT, HI

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "list_directory", "parameters": {}},
}
CUSTOM = {"type": "custom", "custom": {"name": "patch"}}
REQUESTS: list[dict[str, Any]] = [
    {},
    {"logprobs": True, "top_logprobs": 2},
    {"n": 2, "service_tier": "auto"},
    {"tools": [TOOL], "tool_choice": "required", "max_tokens": 60},
    {"reasoning_effort": "low"},
    {"verbose": True, "stream_options": {"include_usage": True}},
    {"return_progress": True, "timings_per_token": True},
    {"response_format": {"type": "json_object"}, "stop": "x"},
]


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    with engine(parallel=2) as running:
        yield running


def send(server: Engine, path: str, body: dict[str, Any]) -> httpx.Response:
    response = httpx.post(server.url + path, json=body, timeout=PATIENCE)
    assert response.status_code == 200, response.text
    return response


@pytest.mark.parametrize("fields", REQUESTS)
def test_chat(server: Engine, fields: dict[str, Any]) -> None:
    body = {"messages": HI, "max_tokens": 8, "model": "m"} | fields
    streamed = send(server, CHAT, body | {"stream": True}).text
    whole = {name: value for name, value in body.items() if name != "stream_options"}
    answer = ChatCompletion.model_validate(send(server, CHAT, whole).json())
    assert answer.usage is not None
    lines = [line.removeprefix("data: ") for line in streamed.splitlines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate(json.loads(line)) for line in lines[:-1]]
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason] == [c.finish_reason for c in answer.choices]


def test_calls_of_custom_tools(server: Engine) -> None:
    body = {"messages": HI, "tools": [CUSTOM], "tool_choice": "required", "max_tokens": 200}
    answer = ChatCompletion.model_validate(send(server, CHAT, body).json())
    calls = answer.choices[0].message.tool_calls or []
    assert {call.type for call in calls} <= {"custom"}


@pytest.mark.parametrize("fields", [{}, {"logprobs": 0}, {"echo": True}, {"max_tokens": 0}])
def test_completions(server: Engine, fields: dict[str, Any]) -> None:
    body = {"prompt": ["One two", "Three"], "max_tokens": 4, "model": "m"} | fields
    answer = Completion.model_validate(send(server, "/v1/completions", body).json())
    assert answer.usage is not None


def test_models(server: Engine) -> None:
    listed = httpx.get(f"{server.url}/v1/models", timeout=PATIENCE).json()
    assert [Model.model_validate(model).id for model in listed["data"]]
