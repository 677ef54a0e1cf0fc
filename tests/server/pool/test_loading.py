"""Loading and unloading by hand, and two real models in one server."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from shepherd.backends.base import Backend, Concurrency
from shepherd.backends.llamacpp.native.bindings import native_log
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.settings import Config
from shepherd.conversation.build import backend_opener
from shepherd.errors import ModelLoadError
from shepherd.server.access.keys import KeyStore
from shepherd.server.pool import pool as pool_module
from shepherd.server.pool.pool import ModelPool
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer
from tests.server.pool.places import Home


def states(http: httpx.Client) -> dict[str, str]:
    return {m["id"]: m["status"]["value"] for m in http.get("/v1/models").json()["data"]}


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
def test_models_are_loaded_and_unloaded_by_hand(tmp_path: Path, path: str) -> None:
    home = Home(tmp_path / "home")
    home.add_model("qwen")
    loop = asyncio.new_event_loop()
    pool = loop.run_until_complete(home.open(home.config()))
    with (
        RunningServer(pool, loop=loop) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as http,
    ):
        assert http.post(f"{path}/load", json={"model": "qwen"}).json() == {"success": True}
        assert states(http)["qwen"] == "loaded"
        assert http.post(f"{path}/unload", json={"model": "qwen"}).json() == {"success": True}
        assert states(http)["qwen"] == "unloaded"
        assert http.post(f"{path}/unload", json={"model": "pup"}).status_code == 200
        assert states(http)["pup"] == "unloaded"
        for action in ("load", "unload"):
            reply = http.post(f"{path}/{action}", json={"model": "gone"})
            assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")
            bad: list[Any] = [{}, {"model": ""}, {"model": 3}, {"model": "pup", "keep_alive": []}]
            assert {http.post(f"{path}/{action}", json=body).status_code for body in bad} == {400}


class Lost(ScriptedBackend):
    """As an engine that has ended by itself."""

    @property
    def alive(self) -> bool:
        return False


async def test_a_default_model_that_has_failed_is_not_reachable_until_it_loads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a model whose worker on another machine is away; then it is back."""
    home = Home(tmp_path / "home")
    opened: list[Backend | Exception] = [Lost(parse_script("text: no"))]
    opened += [ModelLoadError("no worker"), ModelLoadError("no worker")]

    async def open_next(_: Config) -> Backend:
        backend = opened.pop(0) if opened else ScriptedBackend(parse_script("text: yes"))
        if isinstance(backend, Exception):
            raise backend
        return backend

    pool = await home.open(home.config(), open_next)
    try:
        assert not await pool.default.reachable()
        assert len(opened) == 1
        assert not await pool.default.reachable()
        assert len(opened) == 1, "it was tried just before"
        monkeypatch.setattr(pool_module, "RELOAD_SECONDS", 0.0)
        assert not await pool.default.reachable()
        assert await pool.default.reachable()
        async with pool.lease(None) as model:
            assert await model.reachable()
    finally:
        await pool.aclose()


def test_only_administrators_load_models(tmp_path: Path) -> None:
    home, keys = Home(tmp_path / "home"), KeyStore(tmp_path / "keys.json")
    key = keys.add("laptop")
    loop = asyncio.new_event_loop()
    pool = loop.run_until_complete(home.open(home.config()))
    with RunningServer(pool, keys=keys, loop=loop) as server:
        for path in ("/v1/models/load", "/models/unload"):
            reply = httpx.post(
                server.url + path,
                json={"model": "pup"},
                headers={"Authorization": f"Bearer {key}"},
                timeout=PATIENCE,
            )
            assert reply.status_code == 403


def test_two_real_models_share_the_memory_for_one(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.add_model("twin")
    loop = asyncio.new_event_loop()
    config = home.config(max_models=1, aliases={"other": "twin"})
    opener = backend_opener(home.book, Concurrency(2))
    pool: ModelPool = loop.run_until_complete(home.open(config, opener))
    with (
        RunningServer(pool, loop=loop) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as http,
    ):
        for name, loaded in [("pup", "pup"), ("other", "twin"), ("default", "pup")]:
            body = {"model": name, "messages": HI, "max_tokens": 4, "temperature": 0}
            reply = http.post(CHAT, json=body).json()
            assert reply["model"] == name
            assert reply["usage"]["completion_tokens"] > 0
            listed = states(http)
            assert [n for n in ("pup", "twin") if listed[n] == "loaded"] == [loaded]
            assert http.get("/health").json()["model"] == "pup"


def test_what_loads_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_log, "progress", 0.25)
    home, go_on = Home(tmp_path / "home"), asyncio.Event()
    home.add_model("slow")

    async def opener(config: Config) -> Backend:
        if config.model.name.endswith("slow.gguf"):
            await go_on.wait()
        return await home.open_scripted(config)

    loop = asyncio.new_event_loop()
    pool = loop.run_until_complete(home.open(home.config(), opener))
    with (
        RunningServer(pool, loop=loop) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as http,
        ThreadPoolExecutor(1) as threads,
    ):

        def loading() -> list[dict[str, Any]]:
            return http.get("/models/loading").json()["loading"]

        assert loading() == []
        work = threads.submit(
            httpx.post, f"{server.url}/models/load", json={"model": "slow"}, timeout=PATIENCE
        )
        server.until(lambda: any(served.since for served in pool.every()))
        (load,) = loading()
        assert (load["model"], load["status"]) == ("slow", "loading")
        assert load["total"] == (home.models / "slow.gguf").stat().st_size
        assert load["completed"] == round(load["total"] / 4)
        assert load["seconds"] >= 0
        loop.call_soon_threadsafe(go_on.set)
        assert work.result().status_code == 200
        assert loading() == []
