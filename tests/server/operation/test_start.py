"""A server whose port is open before its model is loaded."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from shepherd.backends.base import Backend
from shepherd.config.settings import Config
from shepherd.errors import ModelLoadError
from shepherd.server.access.keys import KeyStore
from shepherd.server.app import create_app
from shepherd.server.listen import bind
from shepherd.server.operation.lifecycle import Lifecycle
from shepherd.server.pool.pool import open_pool
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.uvicorn_server import DrainingServer
from tests.patience import PATIENCE, POLL
from tests.server.harness import CHAT, HI
from tests.server.operation.test_metrics import WIRES
from tests.server.pool.places import Home


@dataclass
class Start:
    """A server that loads its model once `go` is set; `ended` is its end.

    `states` are those that it tells.
    """

    server: DrainingServer
    http: httpx.AsyncClient
    ended: "asyncio.Task[None]"
    go: asyncio.Event
    states: list[str]

    async def status(self, path: str = "/ready") -> tuple[int, str]:
        answer = await self.http.get(path)
        return answer.status_code, answer.json()["status"]


@asynccontextmanager
async def starting(
    home: Home, opener: Callable[[Config], Awaitable[Backend]], keys: KeyStore | None = None
) -> AsyncGenerator[Start]:
    """The start of a server, up to its end."""
    go, settings, states = asyncio.Event(), ServerSettings(port=0), list[str]()

    async def load() -> None:
        await go.wait()
        await pool.load_default()
        lifecycle.finish_load()

    pool = await open_pool(home.config(), home.book, opener)
    lifecycle = Lifecycle(states.append)
    app = create_app(pool, settings, keys, lifecycle=lifecycle)
    server = DrainingServer(app, settings=settings)
    with bind(settings) as sock:
        sock.listen()
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        task = asyncio.create_task(server.run_while_loading([sock], load))
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as http:
            yield Start(server, http, task, go, states)
        server.end(force=True)
        await asyncio.wait([task])
    await pool.aclose()


async def test_the_port_is_open_and_requests_are_refused_until_the_model_is_loaded(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    async with starting(home, home.open_scripted) as start, asyncio.timeout(PATIENCE):
        ready = await start.http.get("/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "loading")
        assert ready.json()["reason"] == "The model is loading."
        health = await start.http.get("/health")
        assert health.status_code == 503
        assert health.json()["error"]["message"] == "Loading model"
        for path, body in WIRES.values():
            refused = await start.http.post(path, json=body)
            assert refused.status_code == 503, path
            assert int(refused.headers["retry-after"]) > 0
            assert "Loading model" in refused.text
        assert (await start.http.get("/props")).status_code == 503
        for path in ("/", "/v1/models", "/api/tags", "/metrics", "/api/version"):
            assert (await start.http.get(path)).status_code == 200, path
        assert (home.opened, start.states) == ([], ["loading"])
        start.go.set()
        while (await start.status())[0] != 200:
            await asyncio.sleep(POLL)
        assert await start.status("/health") == (200, "ok")
        answer = await start.http.post(CHAT, json={"messages": HI})
        assert answer.json()["choices"][0]["message"]["content"] == "I am pup."
        assert start.states == ["loading", "ready"]
        assert not start.ended.done()


async def test_a_model_that_can_not_be_loaded_ends_the_start(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.failures["pup"] = ModelLoadError("The file is broken.")
    async with starting(home, home.open_scripted) as start:
        assert await start.status() == (503, "loading")
        start.go.set()
        await asyncio.wait([start.ended], timeout=PATIENCE)
        with pytest.raises(ModelLoadError, match=r"The file is broken\."):
            start.ended.result()


async def test_an_end_does_not_wait_for_the_model(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with starting(home, home.open_scripted) as start:
        assert await start.status() == (503, "loading")
        start.server.end()
        await asyncio.wait([start.ended], timeout=PATIENCE)
        assert start.ended.result() is None
        assert home.opened == []


async def test_keys_are_needed_while_the_model_loads(tmp_path: Path) -> None:
    home, keys = Home(tmp_path / "home"), KeyStore(tmp_path / "keys.json")
    secret = keys.add("laptop")
    async with starting(home, home.open_scripted, keys) as start:
        for path in (CHAT, "/v1/responses"):
            assert (await start.http.post(path, json={})).status_code == 401
            headers = {"x-api-key": secret}
            assert (await start.http.post(path, json={}, headers=headers)).status_code == 503
