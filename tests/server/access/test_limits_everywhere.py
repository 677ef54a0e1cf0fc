"""Limits and models of keys on every path: rounds of the agent, inputs, counting, lists."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from shepherd.backends.base import Backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.key import ApiKey, KeyLimits
from shepherd.server.access.keys import KeyStore
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.agent.support import READ, RecordingBackend, agent_of, directory, runner
from tests.server.harness import CHAT, HI, RunningServer, Scripted

ORIGIN = "https://page.example"
ROUNDS = f"text: I look.\n{READ}\n---\ntext: The milk."


def limited(**limits: int) -> Callable[[ApiKey], ApiKey]:
    return lambda key: replace(key, limits=KeyLimits(**limits))


def with_models(*models: str) -> Callable[[ApiKey], ApiKey]:
    return lambda key: replace(key, models=models)


def post(server: RunningServer[Any], key: str, path: str, body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}", "Origin": ORIGIN}
    return httpx.post(server.url + path, json=body, headers=headers, timeout=PATIENCE)


class NamedKeys:
    """A store of keys, of which each has a new name."""

    def __init__(self, store: KeyStore) -> None:
        self.store = store
        self._numbers = count()

    def add(self, change: Callable[[ApiKey], ApiKey] = lambda key: key) -> str:
        return self.store.add(f"k{next(self._numbers)}", change)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> NamedKeys:
    return NamedKeys(KeyStore(tmp_path_factory.mktemp("keys") / "keys.json"))


@pytest.fixture(scope="module")
def server(keys: NamedKeys) -> Iterator[Scripted]:
    settings = ServerSettings(port=0, cors_origins=[ORIGIN])
    with RunningServer(ScriptedBackend(parse_script("text: hi")), settings, keys.store) as running:
        yield running


@pytest.fixture
def agent_server(keys: NamedKeys, tmp_path: Path) -> Iterator[RunningServer[RecordingBackend]]:
    agent = agent_of(runner(directory(tmp_path)))
    with RunningServer(RecordingBackend(ROUNDS), keys=keys.store, agent=agent) as running:
        yield running


def used(answer: httpx.Response) -> int:
    return answer.json()["usage"]["total_tokens"]


def test_a_limit_ends_an_agent_before_a_round_that_does_not_fit(
    agent_server: RunningServer[RecordingBackend], keys: NamedKeys
) -> None:
    body = {"messages": HI}
    whole = used(post(agent_server, keys.add(), CHAT, body))
    exact = post(agent_server, keys.add(limited(tokens_per_minute=whole)), CHAT, body)
    assert (used(exact), exact.json()["choices"][0]["finish_reason"]) == (whole, "stop")
    assert exact.headers["x-ratelimit-remaining-tokens"] == "0"
    ends = ((1, "I look.\n\nThe milk"), (2, "I look.\n\nThe "), (whole // 2, "I look."))
    for missing, content in ends:
        tokens = whole - missing
        key = keys.add(limited(tokens_per_minute=tokens))
        short = post(agent_server, key, CHAT, body)
        choice = short.json()["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("length", content)
        assert used(short) <= tokens


@pytest.mark.parametrize("body", [{}, {"max_tokens": 12}])
def test_rounds_in_parallel_never_exceed_a_limit(
    agent_server: RunningServer[RecordingBackend], keys: NamedKeys, body: dict[str, Any]
) -> None:
    key = keys.add(limited(tokens_per_day=150))
    send = partial(post, agent_server, key, CHAT)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, [{"messages": HI, **body}] * 16))
    assert {answer.status_code for answer in answers} == {200, 429}
    assert sum(used(answer) for answer in answers if answer.is_success) <= 150


INPUTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/embeddings", {"input": ["one two", "three four"]}),
    ("/embedding", {"content": "one two three four"}),
    ("/api/embed", {"model": "default", "input": ["one two", "three four"]}),
    ("/api/embeddings", {"model": "default", "prompt": "one two three four"}),
    ("/v1/rerank", {"query": "one", "documents": ["two", "three"]}),
]


@pytest.mark.parametrize(("path", "body"), INPUTS)
def test_inputs_over_a_limit_are_refused_before_they_are_read(
    server: Scripted, keys: NamedKeys, path: str, body: dict[str, Any]
) -> None:
    small = keys.add(limited(tokens_per_minute=3))
    refused = post(server, small, path, body)
    assert refused.status_code == 429
    assert refused.headers["x-ratelimit-remaining-tokens"] == "3"
    enough = keys.add(limited(tokens_per_minute=9))
    assert [post(server, enough, path, body).status_code for _ in range(3)] == [200, 200, 429]


COUNTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/messages/count_tokens", {"model": "default", "messages": HI}),
    ("/v1/chat/completions/input_tokens", {"messages": HI}),
    ("/v1/responses/input_tokens", {"input": "hi"}),
    ("/v1beta/models/default:countTokens", {"contents": [{"parts": [{"text": "hi"}]}]}),
]
WIRES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": HI, "max_tokens": 1}),
    ("/v1/messages", {"model": "default", "messages": HI, "max_tokens": 1}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 16, "store": False}),
    (
        "/v1beta/models/default:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "generationConfig": {"maxOutputTokens": 1},
        },
    ),
    ("/api/chat", {"model": "default", "messages": HI, "stream": False}),
    ("/v1/completions", {"prompt": "hi", "max_tokens": 1}),
]


@pytest.mark.parametrize(("path", "body"), COUNTS)
def test_counting_needs_tokens_that_are_left(
    server: Scripted, keys: NamedKeys, path: str, body: dict[str, Any]
) -> None:
    key = keys.add(limited(tokens_per_minute=4))
    assert post(server, key, path, body).status_code == 200
    embedded = post(server, key, "/v1/embeddings", {"input": "one two three four"})
    assert embedded.status_code == 200
    assert post(server, key, path, body).status_code == 429


@pytest.mark.parametrize(("path", "body"), [*WIRES, *COUNTS, *INPUTS])
def test_every_wire_tells_the_limits_also_to_web_pages(
    server: Scripted, keys: NamedKeys, path: str, body: dict[str, Any]
) -> None:
    key = keys.add(limited(tokens_per_minute=900, requests_per_day=1))
    for remaining in ("0", "0"):
        answer = post(server, key, path, body)
        assert answer.headers["x-ratelimit-limit-requests"] == "1"
        assert answer.headers["x-ratelimit-remaining-requests"] == remaining
        assert answer.headers["x-ratelimit-limit-tokens"] == "900"
        exposed = answer.headers["access-control-expose-headers"].lower().split(", ")
        about = ("x-ratelimit", "anthropic-ratelimit", "retry-after", "x-shepherd", "x-request-id")
        assert {name for name in answer.headers if name.startswith(about)} <= {*exposed}
        assert {"x-request-id", "x-shepherd-evicted", "retry-after"} <= {*exposed}
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0


def google_names(body: Any) -> list[str]:
    return [m["baseModelId"] for m in body["models"]]


LISTS: list[tuple[str, dict[str, str], Callable[[Any], list[str]]]] = [
    ("/v1/models", {}, lambda body: [m["id"] for m in body["data"]]),
    ("/v1/models", {}, lambda body: [m["name"] for m in body["models"]]),
    ("/models", {}, lambda body: [m["id"] for m in body["data"]]),
    ("/v1/models", {"anthropic-version": "1"}, lambda body: [m["id"] for m in body["data"]]),
    ("/v1beta/models", {}, google_names),
    ("/v1/models", {"x-goog-api-client": "1"}, google_names),
    ("/api/tags", {}, lambda body: [m["name"] for m in body["models"]]),
    ("/api/ps", {}, lambda body: [m["name"] for m in body["models"]]),
    ("/stats", {}, lambda body: body["loaded"]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "headers", "names"), LISTS)
def test_lists_have_only_the_models_of_the_key(
    server: Scripted,
    keys: NamedKeys,
    path: str,
    headers: dict[str, str],
    names: Callable[[Any], list[str]],
) -> None:
    backend: Backend = server.backend
    for pattern, expected in (("*", [backend.info.id]), ("other*", [])):
        key = keys.add(with_models(pattern))
        sent = {"Authorization": f"Bearer {key}", **headers}
        answer = httpx.get(server.url + path, headers=sent, timeout=PATIENCE)
        assert names(answer.json()) == expected
