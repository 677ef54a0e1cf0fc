"""The default model leaves memory after a time without requests, and loses no conversation."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from shepherd.backends.base import Concurrency
from shepherd.conversation.build import backend_opener
from shepherd.server.models import ModelState
from shepherd.server.pool.pool import ModelPool
from tests.patience import PATIENCE
from tests.server.harness import CHAT, RunningServer
from tests.server.pool.places import Home

WAIT = 0.3
"""Seconds without requests until the model leaves."""

LOOKS = ("/health", "/ready", "/models", "/props", "/metrics", "/stats")
"""What a monitor reads all the time."""

LONG = "Remember these numbers: " + " ".join(map(str, range(150)))


class Idle:
    """A running server whose default model leaves."""

    def __init__(self, server: RunningServer[ModelPool], http: httpx.Client) -> None:
        self.server = server
        self.http = http

    def sleeps(self) -> bool:
        return self.http.get("/props").json()["is_sleeping"]

    def fall_asleep(self) -> None:
        """Wait until the model has left, and read all that must not wake it or keep it awake."""
        until = time.monotonic() + PATIENCE
        while not self.sleeps():
            for path in LOOKS:
                assert self.http.get(path).status_code == 200
            assert time.monotonic() < until

    def ask(self, *texts: str) -> dict[str, Any]:
        roles = ("user", "assistant")
        messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
        body = {"messages": messages, "max_tokens": 4, "temperature": 0}
        reply = self.http.post(CHAT, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Idle]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home, loop = Home(tmp_path / "home"), asyncio.new_event_loop()
    opener = backend_opener(home.book, Concurrency(2))
    pool = loop.run_until_complete(home.open(home.config(keep_alive=f"{WAIT}s"), opener))
    with (
        RunningServer(pool, loop=loop) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as http,
    ):
        yield Idle(server, http)


def test_a_conversation_goes_on_from_the_disk(idle: Idle) -> None:
    first = idle.ask(LONG)
    idle.fall_asleep()
    answer = first["choices"][0]["message"]["content"]
    second = idle.ask(LONG, answer, "And the first of them?")
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["prompt_tokens"] - 1


def test_looking_tells_that_it_sleeps_and_does_not_wake_it(idle: Idle) -> None:
    awake = idle.http.get("/props").json()
    idle.fall_asleep()
    states = {path: idle.http.get(path).json() for path in LOOKS if path != "/metrics"}
    assert states["/health"]["status"] == "ok"
    assert states["/health"]["model_state"] == "unloaded"
    assert (states["/ready"]["status"], states["/ready"]["model_state"]) == ("ready", "unloaded")
    assert states["/models"]["data"][0]["status"] == {"value": "unloaded"}
    assert states["/props"] == awake | {"is_sleeping": True}
    assert states["/stats"]["loaded"] == []
    idle.server.until(lambda: not idle.server.backend.loaded())  # it has written its conversations
    assert "shepherd_models_loaded 0.0" in idle.http.get("/metrics").text
    assert idle.sleeps()
    counted = idle.http.post(
        "/v1/messages/count_tokens",
        json={"model": "pup", "messages": [{"role": "user", "content": "hi"}]},
    )
    assert counted.json()["input_tokens"] > 0
    assert not idle.sleeps()
    assert idle.http.get("/health").json()["model_state"] == "loaded"


def test_requests_that_race_with_the_unload_are_answered(idle: Idle) -> None:
    """They come before, at and after the end of the time, two at once."""
    with ThreadPoolExecutor(2) as threads:
        for shift in (-0.02, -0.005, 0.0, 0.005, 0.02):
            time.sleep(WAIT + shift)
            replies = [threads.submit(idle.ask, f"{LONG} {number}") for number in range(2)]
            for reply in replies:
                assert reply.result()["usage"]["completion_tokens"] > 0


async def test_without_the_setting_only_other_models_leave(tmp_path: Path) -> None:
    """A reload with it counts for the model that is loaded already."""
    home = Home(tmp_path / "home")
    home.add_model("qwen")
    pool = await home.open(home.config())

    async def times() -> dict[str, bool]:
        async with pool.lease("qwen"):
            pass
        return {model.info.id: model.expires is not None for model in pool.served()}

    assert (await times())["pup"] is False
    assert (await times())["qwen"] is True
    config = home.config(keep_alive="1h")
    await pool.reconfigure(config, home.book, home.open_scripted, reopens=False)
    assert (await times())["pup"] is True
    await pool.reconfigure(home.config(), home.book, home.open_scripted, reopens=False)
    assert (await times())["pup"] is False
    assert home.opened == ["pup", "qwen"]
    await pool.aclose()


async def test_a_provider_elsewhere_stays_connected(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    pool = await home.open(home.config("cloud", keep_alive="0"))
    assert pool.served()[0].state is ModelState.LOADED
    await pool.aclose()
