"""Nothing that a client sends is a failure of the server."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.server.anthropic.answers import Thoughts
from shepherd.server.seal import Seal
from tests.examples import examples
from tests.patience import PATIENCE
from tests.server.anthropic.support import COUNT, MESSAGES, READ, Server
from tests.server.harness import scripted
from tests.server.mutations import JSON, mutated

TEXT: dict[str, Any] = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
SOURCE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": [TEXT], "is_error": True}
SIGNATURE = Thoughts(Seal()).signature("hm")
EXAMPLE: dict[str, Any] = {
    "model": "claude",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}, TEXT],
    "messages": [
        {"role": "user", "content": [TEXT]},
        {"role": "system", "content": "Late."},
        {
            "role": "assistant",
            "content": [
                TEXT,
                {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [RESULT, {"type": "document", "source": {"type": "text", "data": "d"}}],
        },
    ],
    "tools": [READ, {"type": "bash_20250124", "name": "bash"}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {}}},
    "stop_sequences": ["END"],
    "temperature": 1,
    "top_p": 0.5,
    "top_k": 5,
    "stream": True,
    "context_management": {"edits": []},
    "mcp_servers": [],
    "thread": None,
}
BLOCKS = [
    {"type": "image", "source": SOURCE},
    {"type": "image", "source": {"type": "url", "url": "data:image/png;base64,AAAA"}},
    {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
    {"type": "redacted_thinking", "data": SIGNATURE},
    {"type": "search_result", "source": "s", "title": "t", "content": [TEXT]},
    {"type": "document", "source": {"type": "content", "content": [TEXT]}},
    RESULT,
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with scripted('think: hm\ntext: "{}"\ncall: read_file {"path": "a"}') as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as running:
        yield running


def check(response: httpx.Response) -> None:
    if response.status_code == 200:
        return
    assert 400 <= response.status_code < 500, response.text
    body = response.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["message"]


def test_the_example_is_answered(client: httpx.Client) -> None:
    assert client.post(MESSAGES, json=EXAMPLE).status_code == 200
    assert client.post(COUNT, json=EXAMPLE).json()["input_tokens"] > 0


@settings(max_examples=examples(800))
@given(mutated(EXAMPLE))
def test_requests_that_are_nearly_right(client: httpx.Client, body: dict[str, Any]) -> None:
    check(client.post(MESSAGES, json=body))


@settings(max_examples=examples(120))
@given(mutated(EXAMPLE))
def test_a_count_is_as_strict_as_a_message(client: httpx.Client, body: dict[str, Any]) -> None:
    body |= {"max_tokens": 5, "stream": None}
    message, count = client.post(MESSAGES, json=body), client.post(COUNT, json=body)
    check(count)
    assert count.status_code == message.status_code, body
    if count.status_code == 400:
        assert count.json()["error"] == message.json()["error"]


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": "hot"},
        {"stop_sequences": 5},
        {"response_format": {"type": "json_object"}},
        {"n": 2},
        {"guided_regex": "a+"},
        {"thinking": {"type": "loud"}},
        {"tool_choice": {"type": "tool", "name": "missing"}},
    ],
)
def test_a_count_refuses_a_field_by_its_name(client: httpx.Client, field: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [READ]} | field
    answer = client.post(COUNT, json=body)
    assert answer.status_code == 400
    assert list(field)[-1] in answer.json()["error"]["message"]


@settings(max_examples=examples(240))
@given(
    st.sampled_from(BLOCKS).flatmap(mutated) | JSON,
    st.sampled_from(["user", "assistant", "system"]),
)
def test_odd_blocks(client: httpx.Client, block: Any, role: str) -> None:
    messages = [{"role": role, "content": [TEXT, block]}, {"role": "user", "content": "hi"}]
    check(client.post(MESSAGES, json={"max_tokens": 5, "messages": messages}))


@given(JSON)
def test_any_json(client: httpx.Client, body: Any) -> None:
    check(client.post(MESSAGES, json=body))
    check(client.post(COUNT, json=body))
