"""Pauses between tries, limits of our own, addresses."""

import asyncio
from email.utils import formatdate

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.api.adapter import ApiRequest, ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import READ_SECONDS, Endpoint, new_http
from shepherd.backends.api.http.retry import (
    WINDOW,
    RateLimiter,
    RateLimits,
    RetryPolicy,
    retry_after,
)
from shepherd.events import Topic
from tests.backends.api.plain_adapter import PlainAdapter
from tests.backends.api.support import Events, FakeTime, asking, options
from tests.backends.api.upstream import Reply, Upstream

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
    ],
)
def test_what_the_provider_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, {}, NOW) == seconds


def test_google_says_it_in_the_body() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
    assert retry_after({}, {"error": {"details": [{"reason": "x"}, info]}}, NOW) == 34.07
    assert retry_after({}, {"error": "x"}, NOW) is None


@given(st.text(max_size=40))
def test_no_header_is_too_strange(value: str) -> None:
    found = retry_after({"retry-after": value, "retry-after-ms": value}, value, NOW)
    assert found is None or found >= 0


@given(st.integers(1, 20), st.floats(0, 1))
def test_pauses_grow_to_a_limit(failed: int, chance: float) -> None:
    policy = RetryPolicy()
    assert 0 <= policy.pause(failed, chance) <= policy.pause(failed + 1, chance) <= policy.max_delay


@given(
    st.integers(0, 4), st.integers(0, 100), st.lists(st.integers(0, 150), min_size=1, max_size=15)
)
async def test_no_window_ever_holds_more_than_allowed(
    requests: int, tokens: int, asked: list[int]
) -> None:
    time = FakeTime()
    limiter = RateLimiter(RateLimits(requests, tokens), time.timing())
    went: list[tuple[float, int]] = []

    async def go(amount: int) -> None:
        await limiter.admit(amount)
        went.append((time.now, amount))

    await asyncio.gather(*map(go, asked))
    assert [amount for _, amount in went] == asked
    for end, _ in went:
        window = [amount for at, amount in went if end - WINDOW < at <= end]
        assert not requests or len(window) <= requests
        assert not tokens or sum(window) <= tokens or sum(1 for a in window if a) == 1
    if not requests and not tokens:
        assert time.slept == []


async def test_the_answers_tokens_count() -> None:
    time = FakeTime()
    limiter = RateLimiter(RateLimits(0, 100), time.timing())
    await limiter.admit(10)
    limiter.add_spent(90)
    await limiter.admit(10)
    assert sum(time.slept) == pytest.approx(WINDOW)


async def test_an_answer_is_no_request() -> None:
    time = FakeTime()
    limiter = RateLimiter(RateLimits(2, 1000), time.timing())
    await limiter.admit(10)
    limiter.add_spent(10)
    await limiter.admit(10)
    assert time.slept == []


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://a.example/v1", "chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1/", "/models?limit=1", "https://a.example/v1/models?limit=1"),
        ("http://localhost:8080/v1", "../props", "http://localhost:8080/props"),
        ("http://h/p", "/v1beta/models/x:go?alt=sse", "http://h/p/v1beta/models/x:go?alt=sse"),
    ],
)
def test_addresses(base: str, path: str, url: str) -> None:
    assert Endpoint(base).url(ApiRequest(path)) == url


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://192.168.1.7", True),
        ("http://box.local", True),
        ("http://vllm:8000", True),
        ("https://api.example.com", False),
        ("http://8.8.8.8", False),
    ],
)
async def test_near_servers_may_be_long_at_the_prompt(url: str, near: bool) -> None:  # noqa: FBT001
    endpoint = Endpoint(url, "a-secret-key", {"x": "a-secret-header"})
    assert endpoint.is_near is near
    assert "a-secret" not in repr(endpoint)
    async with new_http(endpoint) as http:
        assert http.timeout == httpx.Timeout(
            connect=10, write=30, pool=None, read=None if near else READ_SECONDS
        )


async def test_a_wait_for_a_limit_of_ours_is_told_once() -> None:
    time, events = FakeTime(), Events()
    limits = replace(options(time), limits=RateLimits(requests_per_minute=1))
    async with Upstream(lambda _: Reply.sse([{"text": "yes"}])) as up:
        backend = ApiBackend(Endpoint(up.url), PlainAdapter(), ModelTraits("m"), options=limits)
        for _ in range(2):
            await backend.generate_from_session(asking(), events)
        await backend.aclose()
    waits = [text for _, text, name, _ in events.all if name == Topic.NOTICE]
    assert waits == ["Waiting 60 s: no more requests or tokens a minute are set for it."]
    assert time.slept
