"""Bytes that no well-behaved client sends: the server answers or closes, and goes on."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, Scripted, scripted

JSON_HEADER = {"Content-Type": "application/json"}

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["user", "tool", "assistant", "system", "text", "function", "auto", "none"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*"abc", "type", "text", "name", "role"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)

FIELDS = [
    "model",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "stop",
    "reasoning_effort",
    "chat_template_kwargs",
    "n",
    "response_format",
    "grammar",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "ignore_eos",
    "samplers",
    "dry_sequence_breakers",
    "mirostat",
    "functions",
    "modalities",
]

calls = st.fixed_dictionaries(
    {}, optional={"id": json_values, "function": st.fixed_dictionaries(
        {"name": st.just("f") | json_values}, optional={"arguments": st.text() | json_values}
    )}
)  # fmt: skip

messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "developer"]) | json_values},
    optional={
        "content": json_values,
        "reasoning_content": json_values,
        "tool_calls": st.lists(calls, max_size=2) | json_values,
        "tool_call_id": st.text(max_size=4) | json_values,
        "name": json_values,
    },
)

requests = st.fixed_dictionaries(
    {"messages": st.lists(messages, min_size=1, max_size=3) | json_values},
    optional=dict.fromkeys(FIELDS, json_values),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted('chunk: 3\ntext: some text\ncall: f {"a": 1}') as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Scripted) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as opened:
        yield opened


def well_formed(response: httpx.Response) -> bool:
    """An answer, a stream that ends as it should, or an error in shape."""
    if response.status_code != 200:
        error = response.json()["error"]
        return response.status_code < 500 and {"message", "type", "param", "code"} == set(error)
    if response.headers["content-type"].startswith("text/event-stream"):
        return response.text.endswith("data: [DONE]\n\n")
    return response.json()["object"] == "chat.completion"


relaxed = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@relaxed
@given(body=requests)
def test_any_json_is_answered(client: httpx.Client, body: Any) -> None:
    content = json.dumps(body)
    assert well_formed(client.post(CHAT, content=content, headers=JSON_HEADER))


@relaxed
@given(value=json_values, name=st.sampled_from(FIELDS))
def test_any_value_of_any_field_is_answered(client: httpx.Client, value: Any, name: str) -> None:
    content = json.dumps({"messages": HI, name: value})
    assert well_formed(client.post(CHAT, content=content, headers=JSON_HEADER))


@pytest.mark.parametrize("name", FIELDS)
def test_null_means_unset(client: httpx.Client, name: str) -> None:
    response = client.post(CHAT, json={"messages": HI, name: None})
    assert response.status_code == 200


@settings(max_examples=examples(40), deadline=None)
@given(content=st.binary(max_size=200) | st.text(max_size=50).map(str.encode))
def test_any_bytes_are_answered(client: httpx.Client, content: bytes) -> None:
    response = client.post(CHAT, content=content, headers=JSON_HEADER)
    assert response.status_code == 400
    assert well_formed(response)


@pytest.mark.parametrize(
    "body",
    [
        '{"messages": [{"role": "user", "content": "half \\ud83d"}]}',
        '{"messages": [{"role": "user", "content": "whole \\ud83d\\ude00"}]}',
        '{"messages": [{"role": "user", "content": "nul \\u0000"}]}',
        '{"messages": [{"role": "user", "content": "hi"}], "seed": 1' + "0" * 400 + "}",
        '{"messages": [{"role": "user", "content": "hi"}], "seed": -1}',
        '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1' + "0" * 30 + "}",
        '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": -1, "stop": ""}',
    ],
)
def test_odd_requests_are_served(client: httpx.Client, body: str) -> None:
    response = client.post(CHAT, content=body, headers=JSON_HEADER)
    assert (response.status_code, response.text) == (200, response.text)


@pytest.mark.parametrize(
    "body",
    [
        '{"messages": ' + "[" * 100_000,
        '{"messages": [{"role": "user", "content": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}]}",
        '{"messages": [{"role": "user", "content": "hi"}], "temperature": NaN}',
        '{"messages": [{"role": "user", "content": "hi"}], "top_k": 1e999}',
        '{"messages": [{"role": "user", "content": "hi"}], "seed": 1' + "0" * 5000 + "}",
    ],
)
def test_odd_requests_are_refused(client: httpx.Client, body: str) -> None:
    response = client.post(CHAT, content=body, headers=JSON_HEADER)
    assert response.status_code == 400
    assert well_formed(response)


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_malformed_http_is_refused(server: Scripted, sent: bytes) -> None:
    received = server.raw(sent)
    assert received == b"" or received.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 414 "))
    assert httpx.get(f"{server.url}/health", timeout=PATIENCE).status_code == 200


def test_connection_that_says_nothing_holds_nobody_up(server: Scripted) -> None:
    with server.connect_and_post({"messages": HI}) as idle:
        assert idle.recv(20).startswith(b"HTTP/1.1 200")
        assert httpx.get(f"{server.url}/health", timeout=PATIENCE).status_code == 200


def test_requests_in_one_write_are_answered_in_order(server: Scripted) -> None:
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    received = server.raw(get + get + last)
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.endswith(b"}]}")


@pytest.mark.parametrize(
    "headers",
    [b"Content-Length: 1000000000\r\n", b"Content-Length: 17000000\r\nExpect: 100-continue\r\n"],
)
def test_large_body_is_refused_before_it_is_sent(server: Scripted, headers: bytes) -> None:
    start = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    received = server.raw(start + headers + b"Content-Type: application/json\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 413 ")
    assert b"request_too_large" in received
