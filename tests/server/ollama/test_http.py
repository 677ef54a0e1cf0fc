"""The Ollama API over plain HTTP: lines of JSON, errors in its shape, odd requests."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from hypothesis import given

from shepherd.server.access.keys import KeyStore
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.harness import RunningServer
from tests.server.held import HeldBackend, RecordingBackend
from tests.server.mutations import mutated
from tests.server.ollama.harness import CHAT, GENERATE, HI, client_of, recording

Server = RunningServer[RecordingBackend]
ANSWER = r"""
chunk: 3
think: Let me see.
text: "Hello ä you,\u2028 [1, 2]"
call: get_time {"zone": "UTC"}
"""
TEXT = "Hello ä you,\u2028 [1, 2]"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with recording(ANSWER) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as running:
        yield running


def lines_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The lines of a stream, each of which is JSON."""
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text[:-1].split("\n")]


def failed(response: httpx.Response) -> int:
    """The status of an error in Ollama's shape."""
    (error,) = response.json().values()
    assert list(response.json()) == ["error"]
    assert isinstance(error, str)
    assert error
    return response.status_code


def test_a_stream_has_the_parts_of_the_whole() -> None:
    with recording(ANSWER) as server:
        url = server.url + CHAT
        body = {"model": "m", "messages": HI, "think": True}
        streamed = lines_of(httpx.post(url, json=body, timeout=PATIENCE))
        whole = httpx.post(url, json=body | {"stream": False}, timeout=PATIENCE).json()
    messages = [line["message"] for line in streamed]
    assert "".join(m["content"] for m in messages) == whole["message"]["content"] == TEXT
    assert "".join(m.get("thinking", "") for m in messages) == whole["message"]["thinking"]
    calls = [call["function"] for m in messages for call in m.get("tool_calls", [])]
    assert calls == [call["function"] for call in whole["message"]["tool_calls"]]
    assert calls == [{"index": 0, "name": "get_time", "arguments": {"zone": "UTC"}}]
    assert set(streamed[-1]) == set(whole)


@pytest.mark.parametrize("path", [CHAT, GENERATE])
def test_an_answer_is_streamed_unless_it_is_refused(client: httpx.Client, path: str) -> None:
    body: dict[str, Any] = {"model": "m", "messages": HI, "prompt": "hi"}
    assert len(lines_of(client.post(path, json=body))) > 2
    assert len(lines_of(client.post(path, json=body | {"stream": None}))) > 2
    whole = client.post(path, json=body | {"stream": False})
    assert whole.headers["content-type"] == "application/json"
    assert whole.json()["done"]


def test_no_comment_fills_the_silence() -> None:
    settings = ServerSettings.model_construct(port=0, keepalive=0.01)
    backend = HeldBackend(hold_generation=True)
    with RunningServer(backend, settings) as server, ThreadPoolExecutor() as pool:
        body = {"model": "m", "messages": HI}
        answer = pool.submit(httpx.post, server.url + CHAT, json=body, timeout=PATIENCE)
        server.until(lambda: backend.working == 1)
        server.do(let_go(backend))
        assert [line["done"] for line in lines_of(answer.result(PATIENCE))] == [False, True]


async def let_go(backend: HeldBackend) -> None:
    backend.go.set()


def test_errors_of_every_kind_have_ollama_s_shape(server: Server, client: httpx.Client) -> None:
    body = {"model": "m", "messages": HI}
    assert failed(client.get(CHAT)) == 405
    assert failed(client.post("/api/nothing", json=body)) == 404
    assert failed(client.post(CHAT, json={"messages": HI})) == 400
    assert failed(client.post(CHAT, content=b"[")) == 400
    page = {"Content-Type": "text/plain", "Origin": "http://localhost"}
    assert failed(client.post(CHAT, content=b"{}", headers=page)) == 415
    assert failed(client.post(CHAT, json=body, headers={"Host": "evil.example"})) == 403
    assert failed(client.post("/api/blobs/sha256:abc", content=b"x" * 100_000)) == 400
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
    )
    assert b"400" in server.raw(head.encode()).splitlines()[0]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
def test_programs_may_send_any_content_type(client: httpx.Client, kind: str) -> None:
    """`curl -d` sends the first one, and is what Ollama's documentation shows."""
    body = json.dumps({"model": "m", "messages": HI, "stream": False, "prompt": "hi"})
    for path in (CHAT, GENERATE):
        answer = client.post(path, content=body, headers={"Content-Type": kind})
        assert answer.json()["done"]
    for names in ('"name": "script"', '"model": "", "name": "script"'):  # Go's client sends both
        show = client.post("/api/show", content=f"{{{names}}}", headers={"Content-Type": kind})
        assert show.json()["capabilities"]


@pytest.mark.parametrize("stream", [True, False])
def test_the_oldest_turns_leave_only_if_the_request_says_so(stream: Any) -> None:
    long: list[Any] = [{"role": "user", "content": "one two three four five six"}]
    answer: list[Any] = [{"role": "assistant", "content": "seven eight nine ten"}]
    body: dict[str, Any] = {"model": "m", "messages": [*long, *answer, *HI], "stream": stream}
    with recording("context: 16\ntext: hello") as server:
        url = server.url + CHAT
        assert failed(httpx.post(url, json=body, timeout=PATIENCE)) == 400
        shortened = httpx.post(url, json=body | {"truncate": True}, timeout=PATIENCE)
        fits = httpx.post(url, json=body | {"messages": HI, "truncate": True}, timeout=PATIENCE)
    assert json.loads(shortened.text.splitlines()[-1])["truncated_messages"] == 2
    assert [message.content for message in server.backend.sessions[-2].messages] == ["hi"]
    assert "truncated_messages" not in json.loads(fits.text.splitlines()[-1])


def test_the_server_says_that_it_runs(client: httpx.Client) -> None:
    assert client.get("/").text == "Ollama is running"
    assert client.head("/").status_code == 200
    version = client.get("/api/version").json()["version"]
    assert [int(part) for part in version.split(".")] >= [0, 6, 4]


def test_keys_guard_it_and_end_its_streams(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    key = keys.add("laptop")
    backend = HeldBackend(hold_generation=True)
    with RunningServer(backend, keys=keys) as server, ThreadPoolExecutor() as pool:
        with client_of(server) as client, pytest.raises(ollama.ResponseError) as caught:
            client.list()
        assert caught.value.status_code == 401
        with client_of(server, key) as client:
            stream = client.chat(model="m", messages=HI, stream=True)
            rest = pool.submit(lambda: list(stream))
            server.until(lambda: backend.working == 1)
            keys.remove("laptop")
            with pytest.raises(ollama.ResponseError, match="not valid any more"):
                rest.result(PATIENCE)


EXAMPLE: dict[str, Any] = {
    "model": "m",
    "stream": False,
    "think": True,
    "format": {"type": "object", "properties": {"a": {"type": "string"}}},
    "keep_alive": "5m",
    "logprobs": True,
    "top_logprobs": 2,
    "options": {"num_predict": 5, "temperature": 0.5, "seed": 1, "stop": ["x"], "num_ctx": 4096},
    "prompt": "hi",
    "system": "Be brief.",
    "raw": False,
    "suffix": None,
    "images": [],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi", "images": []},
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"id": "1", "function": {"name": "a", "arguments": {"n": 1}}}],
        },
        {"role": "tool", "content": "x", "tool_name": "a"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "a",
                "description": "d",
                "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
            },
        }
    ],
}


@given(body=mutated(EXAMPLE))
def test_no_request_is_an_error_of_the_server(client: httpx.Client, body: dict[str, Any]) -> None:
    for path, answer in ((CHAT, ollama.ChatResponse), (GENERATE, ollama.GenerateResponse)):
        response = client.post(path, json=body)
        if response.status_code != 200:
            assert failed(response) < 500, response.text
        else:
            for line in response.text.rstrip("\n").split("\n"):
                answer.model_validate_json(line)
