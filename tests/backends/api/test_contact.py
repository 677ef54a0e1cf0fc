"""Whether a provider is there, as `/health` asks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import CACHE_SECONDS, Endpoint
from tests.backends.api.plain_adapter import PlainAdapter
from tests.backends.api.support import FakeTime, options
from tests.backends.api.upstream import Reply, Upstream
from tests.server.harness import RunningServer


@asynccontextmanager
async def asking(url: str, time: FakeTime) -> AsyncGenerator[ApiBackend]:
    """A backend that has not asked for anything yet."""
    endpoint = Endpoint(url + "/v1", name="acme")
    backend = ApiBackend(endpoint, PlainAdapter(), ModelTraits("m1"), options=options(time))
    try:
        yield backend
    finally:
        await backend.aclose()


@pytest.mark.parametrize(
    ("reply", "there"),
    [
        (Reply({"models": [{"id": "m1"}]}), True),
        (Reply("", 401), True),
        (Reply("", 404), True),
        (Reply("", 429), True),
        (Reply("", 502), False),
    ],
)
async def test_who_answers_is_there(reply: Reply, *, there: bool) -> None:
    async with Upstream(lambda _: reply) as up, asking(up.url, FakeTime()) as backend:
        assert await backend.reachable() is there
        assert len(up.requests) == 1


async def test_many_who_ask_within_seconds_ask_once() -> None:
    time = FakeTime()
    async with Upstream(lambda _: Reply({"models": []})) as up, asking(up.url, time) as backend:
        assert all(await asyncio.gather(*(backend.reachable() for _ in range(5))))
        assert len(up.requests) == 1
        time.now += CACHE_SECONDS
        assert await backend.reachable()
        assert len(up.requests) == 2


async def test_who_does_not_answer_is_not_there_but_may_come_back() -> None:
    async with Upstream() as gone:
        pass
    async with asking(gone.url, FakeTime()) as backend:
        assert not await backend.reachable()
    time = FakeTime()
    async with (
        Upstream([Reply("", 502), Reply({"models": []})]) as up,
        asking(up.url, time) as backend,
    ):
        assert not await backend.reachable()
        assert not await backend.reachable()
        time.now += CACHE_SECONDS
        assert await backend.reachable()


async def test_a_closed_backend_asks_nobody() -> None:
    async with Upstream() as up:
        async with asking(up.url, FakeTime()) as backend:
            pass
        assert not await backend.reachable()
        assert up.requests == []


async def test_the_server_s_health_follows() -> None:
    answers: list[Any] = [Reply({"models": []}), Reply("", 502)]
    time = FakeTime()
    async with Upstream(answers) as up, asking(up.url, time) as backend:

        def health() -> list[httpx.Response]:
            with RunningServer(backend) as server:
                well = httpx.get(f"{server.url}/health")
                time.now += CACHE_SECONDS
                return [well, httpx.get(f"{server.url}/health")]

        well, ill = await asyncio.to_thread(health)
    assert (well.status_code, well.json()["backend_connected"]) == (200, True)
    assert (ill.status_code, ill.json()["backend_connected"]) == (503, False)
    assert ill.json() == {
        "status": "error",
        "backend_connected": False,
        "backend": "plain",
        "model": "m1",
        "model_state": "loaded",
    }
