"""A model that has failed for good is loaded again for the next request."""

import asyncio
from pathlib import Path

from shepherd.backends.base import Backend, Generation, Prefilled
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import BackendError, ModelLoadError
from shepherd.events import EventCallback
from tests.server.conversation.harness import serving, until


class Mortal(ScriptedBackend):
    """Dies of its first question."""

    def __init__(self) -> None:
        super().__init__(parse_script("text: never"), "mortal")
        self.dead = False

    @property
    def alive(self) -> bool:
        return not self.dead

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        self.dead = True
        raise BackendError("the engine has failed")


class Loader:
    """Gives what `loads` holds, one after the other."""

    def __init__(self, *loads: Backend | BackendError | asyncio.Event) -> None:
        self.loads = list(loads)

    async def __call__(self) -> Backend:
        load = self.loads.pop(0)
        if isinstance(load, asyncio.Event):
            load.set()
            await asyncio.Event().wait()
        if isinstance(load, Backend):
            return load
        assert isinstance(load, BackendError)
        raise load


def healthy() -> ScriptedBackend:
    return ScriptedBackend(parse_script("text: I am back."), "healthy")


async def test_the_next_request_loads_it_again(work: Path) -> None:
    async with serving(Mortal(), work) as served:
        loader = Loader(ModelLoadError("no memory"), healthy())
        served.held.loader = loader
        assert (await served.ask("one")).status_code == 500
        assert (await served.http.get("/health")).status_code == 503
        async with served.updates("me") as updates:
            assert (await served.ask("two")).status_code >= 500
            failed = await updates.until("error")
            assert failed.data["message"] == "no memory"
            assert len((await served.session())["messages"]) == 1, "it was not asked"
            assert (await served.ask("three")).json()["content"] == "I am back."
            told = await updates.until("notice")
            assert told.data["topic"] == "warning"
        assert loader.loads == []
        assert (await served.http.get("/health")).json()["model"] == "healthy"
        session = await served.session()
        assert session["model"] == "healthy"
        assert [m["content"] for m in session["messages"]] == ["one", "three", "I am back."]


async def test_loading_can_be_cancelled(work: Path) -> None:
    async with serving(Mortal(), work) as served:
        begun = asyncio.Event()
        served.held.loader = Loader(begun, healthy())
        await served.ask("one")
        request = await served.in_background("two")
        await until(begun.is_set)
        assert (await served.http.delete(f"/request/{request}")).status_code == 202
        assert (await served.ask("three")).json()["content"] == "I am back."
        ended = (await served.http.get(f"/request/{request}")).json()
        assert ended["finish_reason"] == "cancelled"


async def test_a_model_that_fails_again_stays_so(work: Path) -> None:
    async with serving(Mortal(), work) as served:
        for prompt in ("one", "two"):
            assert "the engine has failed" in (await served.ask(prompt)).text
