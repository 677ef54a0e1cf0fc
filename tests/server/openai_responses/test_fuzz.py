"""No request makes the server fail, however it is nearly right."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.patience import PATIENCE
from tests.server.harness import Scripted, scripted
from tests.server.mutations import mutated
from tests.server.openai_responses.harness import PATH, checked_events, created

SCRIPT = """
think: Hm.
text: one
call: f {"a": 1}
call: patch {"input": "x"}
"""
EXAMPLE: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]},
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "b"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "c", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "x"},
        {"type": "function_call_output", "call_id": "c1", "output": "d"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "e"},
    ],
    "tools": [
        {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True},
        {"type": "custom", "name": "patch", "format": {"type": "text"}},
        {
            "type": "namespace",
            "name": "n",
            "description": "",
            "tools": [{"type": "function", "name": "g"}],
        },
        {"type": "web_search"},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "patch"}],
    },
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "truncation": "auto",
    "max_output_tokens": 50,
    "temperature": 1.0,
    "top_p": 0.5,
    "parallel_tool_calls": True,
    "store": False,
    "background": False,
    "stream": False,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted(SCRIPT) as running:
        yield running


def test_the_example_is_right(server: Scripted) -> None:
    assert [item["type"] for item in created(server, **EXAMPLE)["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
    ]


@pytest.fixture(scope="module")
def client(server: Scripted) -> Iterator[httpx.Client]:
    headers = {"Content-Type": "application/json"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE) as opened:
        yield opened


@settings(max_examples=examples(200))
@given(mutated(EXAMPLE), st.sampled_from(["", "/input_tokens"]))
def test_nearly_right_requests(client: httpx.Client, body: dict[str, Any], path: str) -> None:
    answer = client.post(f"{PATH}{path}", content=json.dumps(body))
    assert answer.status_code in (200, 400, 404), answer.text
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.text.startswith("event: response.created")
    else:
        assert answer.json()["object"] in ("response", "response.input_tokens")


def test_events_of_any_chunking_join_to_the_same_text() -> None:
    texts: set[str] = set()
    for size in (1, 2, 5, 100):
        script = f'chunk: {size}\nthink: "Hm ä"\ntext: "one\\n```py\\nx\\n```\\n𝄞 two"\ndelay: 0.01'
        with scripted(script) as server:
            body = {"input": "hi", "stream": True, "reasoning": {"effort": "low"}}
            answer = httpx.post(f"{server.url}{PATH}", json=body, timeout=PATIENCE)
            output = checked_events(answer.text)[-1]["response"]["output"]
            texts.add(json.dumps([item["content"][0]["text"] for item in output]))
            whole = [
                item["content"][0]["text"]
                for item in created(server, **body | {"stream": False})["output"]
            ]
            texts.add(json.dumps(whole))
    assert texts == {json.dumps(["Hm ä", "one\n```py\nx\n```\n𝄞 two"])}
