"""Requests that are a lot of work: answered with a reason, while others are served."""

import asyncio
import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from bench.server.requests import BAD_REQUESTS
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import BUILTIN_NAME, builtin_model
from tests.examples import some
from tests.patience import PATIENCE, POLL
from tests.server.harness import CHAT, HI, RunningServer, Scripted, scripted

Engine = RunningServer[LlamaCppBackend]
SERVED = {"4 MB of spaces between values", "16 stops of 4 KB"}
NEEDS_THE_MODEL = {"128 tools", "8 answers of 20 likeliest", "8 long answers"}
"""Much decoding, or refused by what the model is: not for each run of the tests."""


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    async def load() -> LlamaCppBackend:
        section = LlamaCppSection(threads=1, context_size=2048)
        return await LlamaCppBackend.load(builtin_model(), section, parallel=2, name=BUILTIN_NAME)

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), loop=loop) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize(
    "name", some(sorted(BAD_REQUESTS.keys() - NEEDS_THE_MODEL), "bad requests", 16)
)
def test_bad_requests_are_refused_while_others_are_served(server: Engine, name: str) -> None:
    stop, served = threading.Event(), 0

    def others() -> None:
        nonlocal served
        while not stop.is_set():
            body = {"messages": HI, "max_tokens": 1}
            assert httpx.post(server.url + CHAT, json=body, timeout=PATIENCE).status_code == 200
            assert httpx.get(f"{server.url}/health", timeout=PATIENCE).status_code == 200
            served += 1
            stop.wait(POLL)

    thread = threading.Thread(target=others)
    thread.start()
    headers = {"Content-Type": "application/json"}
    response = httpx.post(
        server.url + CHAT, content=BAD_REQUESTS[name](), headers=headers, timeout=PATIENCE
    )
    stop.set()
    thread.join(PATIENCE)
    assert served
    if name in SERVED:
        assert response.status_code == 200
    else:
        assert response.status_code == 400
        error = response.json()["error"]
        assert set(error) - SIZES == {"message", "type", "param", "code"}
        assert error["code"] == "context_length_exceeded" or not set(error) & SIZES
        assert len(response.content) < 4096


SIZES = {"n_prompt_tokens", "n_ctx"}


@pytest.fixture(scope="module")
def plain() -> Iterator[Scripted]:
    with scripted("text: hi") as running:
        yield running


NUMBERS = ["temperature", "top_p", "n", "seed", "max_tokens", "top_logprobs", "repeat_penalty"]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["true", "NaN", "-Infinity", "1e999", "9" * 5000, "[]"])
def test_what_is_not_a_number_is_refused(plain: Scripted, name: str, value: str) -> None:
    body = f'{{"messages": {json.dumps(HI)}, "{name}": {value}}}'
    headers = {"Content-Type": "application/json"}
    url = plain.url + CHAT
    response = httpx.post(url, content=body, headers=headers, timeout=PATIENCE)
    assert response.status_code == 400
    assert response.json()["error"]["code"] in ("invalid_json", "invalid_value")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1e999", "9" * 5000])
@pytest.mark.parametrize("field", ["tools", "response_format", "unknown"])
def test_no_number_is_too_large_anywhere(plain: Scripted, field: str, number: str) -> None:
    body = f'{{"messages": {json.dumps(HI)}, "{field}": {{"a": [{number}]}}}}'
    headers = {"Content-Type": "application/json"}
    url = plain.url + CHAT
    response = httpx.post(url, content=body, headers=headers, timeout=PATIENCE)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\xef\xbb\xbf" + json.dumps({"messages": HI}).encode(), 200),
        (json.dumps({"messages": HI}).encode("utf-16"), 400),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', 400),
        (b'{"n": 9, "n": 1, "messages": [{"role": "user", "content": "hi"}]}', 200),
    ],
)
def test_odd_encodings(plain: Scripted, body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    response = httpx.post(plain.url + CHAT, content=body, headers=headers, timeout=PATIENCE)
    assert response.status_code == status
