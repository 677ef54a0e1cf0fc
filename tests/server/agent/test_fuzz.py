"""Requests to the agent that are nearly right, cut anywhere, or left in the middle."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.config.section import ShowToolCalls
from tests.examples import examples
from tests.patience import PATIENCE
from tests.server.agent.support import READ, WEATHER, Recorded, agent_of, directory, runner, serve
from tests.server.harness import CHAT
from tests.server.mutations import mutated

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
SCRIPT = f"""
think: a note
text: I look.
{READ}
call: write_file {{"path": "new.txt", "content": "x"}}
---
text: Now both.
call: no_such_tool {{"a": [1, null]}}
call: read_file {{"path": 7}}
problem: it is not JSON
---
text: One more.
{READ}
call: weather {{"place": "Rome"}}
---
text: The milk.
"""
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "I look.\n\nNow both."},
    {"role": "user", "content": "and?"},
]
TOOL = WEATHER["function"]
CHAT_BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        *HISTORY,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "read_file", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "b"},
    ],
    "tools": [WEATHER],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "max_tokens": 60,
    "n": 1,
    "reasoning_effort": "high",
    "chat_template_kwargs": {"style": {"a": [1]}},
    "stream_options": {"include_usage": True},
}
MESSAGES_BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 60,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        *HISTORY,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "b"}]},
    ],
    "tools": [{"name": "weather", "input_schema": TOOL["parameters"]}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}
RESPONSES_BODY: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        *HISTORY,
        {"type": "function_call", "call_id": "a", "name": "read_file", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "b"},
    ],
    "tools": [{"type": "function", **TOOL}],
    "max_output_tokens": 60,
    "reasoning": {"effort": "low", "summary": "auto"},
    "truncation": "auto",
    "store": False,
}
BODIES = {CHAT: CHAT_BODY, MESSAGES: MESSAGES_BODY, RESPONSES: RESPONSES_BODY}
REQUESTS = st.sampled_from(sorted(BODIES)).flatmap(
    lambda path: st.tuples(st.just(path), mutated(BODIES[path]))
)
ENDS = {CHAT: "data: [DONE]", MESSAGES: "event: message_stop", RESPONSES: "event: response."}
HEADERS = [{}, {"x-shepherd-truncation": "auto"}, {"x-shepherd-tools": "off"}]


def serving(path: Path, script: str = SCRIPT) -> Recorded:
    return serve(script, agent_of(runner(directory(path)), ShowToolCalls.CONTENT, max_rounds=4))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with serving(tmp_path_factory.mktemp("fuzz")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Recorded) -> Iterator[httpx.Client]:
    headers = {"Content-Type": "application/json", "anthropic-version": "2023-06-01"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE) as opened:
        yield opened


@pytest.mark.parametrize("path", BODIES)
def test_the_examples_are_right(client: httpx.Client, path: str) -> None:
    for stream in (False, True):
        answer = client.post(path, json=BODIES[path] | {"stream": stream})
        assert answer.status_code == 200, answer.text
        assert not stream or ENDS[path] in answer.text


@settings(max_examples=examples(120))
@given(REQUESTS, st.booleans(), st.sampled_from(HEADERS))
def test_nearly_right_requests(
    server: Recorded,
    client: httpx.Client,
    request: tuple[str, dict[str, Any]],
    stream: bool,  # noqa: FBT001 - hypothesis passes it by name
    headers: dict[str, str],
) -> None:
    path, body = request
    content = json.dumps({"stream": stream, **body})
    answer = client.post(path, content=content, headers=headers)
    assert answer.status_code in (200, 400, 404), answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        assert ENDS[path] in answer.text
        assert "internal_error" not in answer.text
    elif answer.status_code == 200:
        assert isinstance(answer.json(), dict)
    else:
        assert answer.json()["error"]["message"]
    assert_idle(server)


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(BODIES)), st.integers(0, 3000))
def test_clients_that_leave_at_any_byte(server: Recorded, path: str, count: int) -> None:
    content = json.dumps(BODIES[path] | {"stream": True}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    with server.connect() as sock, suppress(ConnectionResetError):
        sock.sendall(head.encode() + content)
        received = 0
        while received < count:
            piece = sock.recv(min(97, count - received))
            received += len(piece)
            if not piece or piece.endswith(b"0\r\n\r\n"):
                break
    assert_idle(server)


def assert_idle(server: Recorded) -> None:
    """Nothing runs any more, and no prompt is held."""
    server.until(lambda: server.tasks == 0 and server.backend.active == 0)


@pytest.mark.parametrize("path", BODIES)
def test_any_chunks_join_to_the_same_answer(tmp_path: Path, path: str) -> None:
    texts: set[str] = set()
    for size in (1, 7, 100):
        place = tmp_path / str(size)
        place.mkdir()
        script = "\n---\n".join(
            f"chunk: {size}\n{part}" for part in SCRIPT.strip().split("\n---\n")
        )
        with serving(place, script) as server:
            body = BODIES[path] | {"stream": True}
            with httpx.stream("POST", server.url + path, json=body, timeout=PATIENCE) as stream:
                lines = [line for line in stream.iter_lines() if line.startswith("data: {")]
        texts.add("".join(_text(json.loads(line.removeprefix("data: "))) for line in lines))
    assert len(texts) == 1
    assert "I look.\n\n" in texts.pop()


def _text(event: dict[str, Any]) -> str:
    """The text of the answer in one event of any of the APIs."""
    for choice in event.get("choices", ()):
        return choice["delta"].get("content") or ""
    delta: Any = event.get("delta")
    if isinstance(delta, dict):
        return str(cast(dict[str, Any], delta).get("text", ""))
    return delta if event.get("type") == "response.output_text.delta" and delta else ""
