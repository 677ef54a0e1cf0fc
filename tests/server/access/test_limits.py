"""Limits of keys: never more than allowed, in any period, at any parallelism."""

import concurrent.futures.thread
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.key import ApiKey, KeyLimits, KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.server.access.limits import Limiter, Resource, SlidingWindow
from shepherd.server.access.usage import UsageStore
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, Scripted, ask

STEPS = st.lists(st.tuples(st.floats(-30, 90), st.integers(0, 9)), max_size=60)


@given(STEPS, st.integers(1, 20))
def test_no_period_holds_more_than_the_limit(steps: list[tuple[float, int]], limit: int) -> None:
    window, now, latest = SlidingWindow(60), 1000.0, 0.0
    used: list[tuple[float, int]] = []
    for step, amount in steps:
        now += step
        latest = max(latest, now)
        if amount <= window.free(limit, now):
            window.add(amount, now)
            used.append((latest, amount))
        else:
            later = latest + window.wait(amount, limit, now)
            assert amount > limit or window.free(limit, later) >= amount
            latest = max(latest, later)
    for start, _ in used:
        assert sum(a for moment, a in used if start <= moment < start + 60) <= limit


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=30))
def test_reservations_count_until_they_are_settled(work: list[tuple[int, int]]) -> None:
    window, running = SlidingWindow(60), list[tuple[int, int]]()
    settled = 0
    for number, (reserved, used) in enumerate(work):
        if reserved <= window.free(20, 1.0):
            window.reserve(reserved)
            running.append((reserved, min(used, reserved)))
        if number % 2 and running:
            amount, part = running.pop(0)
            window.settle(amount, part, 1.0)
            settled += part
        assert settled + sum(amount for amount, _ in running) <= 20


def limited(**limits: int) -> Callable[[ApiKey], ApiKey]:
    return lambda key: replace(key, limits=KeyLimits(**limits))


def test_a_store_becomes_garbage_while_another_one_starts_a_thread(tmp_path: Path) -> None:
    """Garbage is collected anywhere, also within the lock that all thread pools share."""
    store = UsageStore(tmp_path / "usage.db")
    store.note_use("k", 1)
    store.flush()
    cycle: list[Any] = [store]
    cycle.append(cycle)
    del store, cycle

    def collect() -> None:
        with concurrent.futures.thread._global_shutdown_lock:  # pyright: ignore[reportPrivateUsage]
            gc.collect()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.json")


@pytest.fixture
def server(keys: KeyStore, tmp_path: Path) -> Iterator[Scripted]:
    settings = ServerSettings(port=0, usage_file=tmp_path / "usage.db")
    with RunningServer(ScriptedBackend(parse_script("text: come in")), settings, keys) as running:
        yield running


def post(server: Scripted, key: str, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    data = {"messages": HI} | body
    return httpx.post(server.url + CHAT, json=data, headers=headers, timeout=PATIENCE)


@pytest.mark.parametrize("tokens", [{}, {"tokens_per_day": 10**6}])
def test_of_50_parallel_requests_only_the_allowed_ones_run(
    server: Scripted, keys: KeyStore, tokens: dict[str, int]
) -> None:
    key = keys.add("k", limited(requests_per_minute=8, **tokens))
    assert post(server, key).status_code == 200
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(partial(post, server), [key] * 50))
    assert sorted(a.status_code for a in answers) == [200] * 7 + [429] * 43
    refused = next(a for a in answers if a.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-ratelimit-limit-requests"] == "8"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHAT, {"messages": 7}, 400),
        ("/v1/embeddings", {"input": {}}, 400),
        ("/apply-template", {"messages": HI}, 400),
        ("/v1/chat/nowhere", {}, 404),
    ],
)
def test_requests_that_reserve_no_tokens_count_too(
    server: Scripted, keys: KeyStore, path: str, body: dict[str, Any], status: int
) -> None:
    key = keys.add("k", limited(requests_per_minute=3, tokens_per_day=10**6))
    headers = {"Authorization": f"Bearer {key}"}

    def ask() -> int:
        return httpx.post(server.url + path, json=body, headers=headers).status_code

    assert post(server, key).status_code == 200
    assert [ask() for _ in range(3)] == [status, status, 429]
    assert post(server, key).status_code == 429


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/api/show"])
def test_requests_that_any_key_may_send_count_too(
    server: Scripted, keys: KeyStore, path: str
) -> None:
    key = keys.add("k", limited(requests_per_minute=2))
    headers = {"Authorization": f"Bearer {key}"}

    def status() -> int:
        body = {"model": "scripted", "content": "a"}
        return httpx.post(server.url + path, json=body, headers=headers).status_code

    assert 429 not in [status(), status()]
    assert status() == 429
    models = httpx.get(f"{server.url}/v1/models", headers=headers)
    assert models.status_code == 200  # a list costs nothing


@pytest.mark.parametrize("body", [{}, {"max_tokens": 3}, {"stream": True}])
def test_tokens_never_exceed_their_limit(
    server: Scripted, keys: KeyStore, body: dict[str, Any]
) -> None:
    key = keys.add("k", limited(tokens_per_minute=40))
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(partial(post, server, **body), [key] * 50))
    assert {a.status_code for a in answers} == {200, 429}
    if "stream" not in body:
        done = [a.json()["usage"]["total_tokens"] for a in answers if a.status_code == 200]
        assert sum(done) <= 40


def test_clients_see_their_own_error_and_headers(server: Scripted, keys: KeyStore) -> None:
    key = keys.add("k", limited(requests_per_minute=1, requests_per_day=9))
    with server.client(key) as client:
        assert ask(client).choices[0].message.content == "come in"
        with pytest.raises(openai.RateLimitError) as caught:
            ask(client)
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["x-ratelimit-reset-requests"].endswith("s")
    with (
        anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0) as other,
        pytest.raises(anthropic.RateLimitError) as refused,
    ):
        other.messages.create(model="any", max_tokens=5, messages=HI)
    assert refused.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert int(refused.value.response.headers["retry-after"]) >= 1


def usage(server: Scripted, key: str, query: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{server.url}/v1/usage{query}", headers=headers, timeout=PATIENCE)


def test_usage_is_counted_and_seen_by_its_key_and_admins(
    server: Scripted, keys: KeyStore, tmp_path: Path
) -> None:
    first, second = keys.add("first"), keys.add("second")
    admin = keys.add("admin", lambda key: replace(key, scopes=frozenset({KeyScope.ADMIN})))
    total = sum(post(server, first).json()["usage"]["total_tokens"] for _ in range(2))
    post(server, second, stream=True)

    def own() -> list[dict[str, Any]]:
        return usage(server, first).json()["data"]

    (row,) = own()
    assert (row["key"], row["requests"]) == ("first", 2)
    assert row["prompt_tokens"] + row["completion_tokens"] == total
    assert usage(server, first, "?key=second").status_code == 403
    assert {row["key"] for row in usage(server, admin).json()["data"]} == {"first", "second"}
    assert [r["key"] for r in usage(server, admin, "?key=second").json()["data"]] == ["second"]
    store = UsageStore(tmp_path / "usage.db")
    assert set(store.last_used()) == {"first", "second"}
    for days in ("0", "-1", "x", "9999999999", "²"):
        assert usage(server, first, f"?days={days}").status_code == 400


def test_an_unwritable_file_fails_no_request(keys: KeyStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = ServerSettings(port=0, usage_file=tmp_path / "file" / "usage.db")
    with RunningServer(ScriptedBackend(parse_script("text: hi")), settings, keys) as server:
        assert post(server, keys.add("free")).status_code == 200
        daily = keys.add("daily", limited(requests_per_day=5))
        assert post(server, daily).status_code == 503


def test_the_day_survives_a_restart(keys: KeyStore, tmp_path: Path) -> None:
    daily = keys.add("daily", limited(requests_per_day=2))
    settings = ServerSettings(port=0, usage_file=tmp_path / "usage.db")
    for expected in (200, 200, 429):
        with RunningServer(ScriptedBackend(parse_script("text: hi")), settings, keys) as server:
            assert post(server, daily).status_code == expected


def test_what_is_written_later_counts_only_in_periods_that_have_it() -> None:
    limiter = Limiter(1000.0)
    limiter.settle(Resource.TOKENS, 0, 5, age=61)
    key = ApiKey("k", "", "a" * 64, datetime(2031, 1, 1, tzinfo=UTC))
    minute = replace(key, limits=KeyLimits(tokens_per_minute=9))
    assert limiter.grant_tokens(minute, 1, 99) == 9
    assert limiter.grant_tokens(replace(key, limits=KeyLimits(tokens_per_day=9)), 1, 99) == 4
