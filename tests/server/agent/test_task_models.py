"""Sub-agents behind the server that have another model than the request."""

import asyncio
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from msgspec import structs

from shepherd.config.section import ShowToolCalls
from shepherd.server.access.keys import KeyStore
from shepherd.server.agent.tasks import turn_task
from shepherd.server.pool.pool import ModelPool
from shepherd.server.settings import ServerSettings
from shepherd.tools.permissions.rules import Rule
from tests.patience import PATIENCE
from tests.server.agent.support import READ, agent_of, directory, runner
from tests.server.harness import CHAT, HI, RunningServer
from tests.server.pool.places import Home

FAR = "https://cloud.example/v1"
AFAR = f"{READ}\n---\ntext: The cloud read it."


def script(*models: str) -> str:
    """An answer with a task for each model, and what it says then."""
    calls = [f"call: task {json.dumps({'prompt': 'look', 'model': name})}" for name in models]
    return "\n".join([*calls, "---", "text: Done."])


class Place:
    """A home with several models, a directory, and keys."""

    def __init__(self, base: Path) -> None:
        self.home = Home(base / "home")
        self.base = base
        self.store = KeyStore(base / "keys.json")
        self.audit = base / "audit.jsonl"

    @contextmanager
    def serve(
        self, *models: str, address: str = "", rules: Sequence[Rule] = ()
    ) -> Generator[RunningServer[ModelPool]]:
        """A server whose model gives a task to each of `models`."""
        self.home.scripts |= {"pup": script(*models), "cloud": AFAR}
        tools = runner(directory(self.base), rules)
        tools.registry.add(turn_task(["cloud", "relay"], lambda _name: address))
        agent = structs.replace(agent_of(tools, ShowToolCalls.CONTENT), max_tasks=4)
        loop = asyncio.new_event_loop()
        pool = loop.run_until_complete(self.home.open(self.home.config()))
        settings = ServerSettings(port=0, audit_file=self.audit)
        with RunningServer(pool, settings, self.store, loop=loop, agent=agent) as server:
            yield server

    def outcomes(self) -> list[tuple[str, str, str]]:
        """The model, tool and outcome of each call."""
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [(line["model"], line["tool"], line["outcome"]) for line in lines]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def post(server: RunningServer[ModelPool], key: str) -> str:
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(server.url + CHAT, json={"messages": HI}, headers=headers, timeout=PATIENCE)
    assert answer.is_success, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def test_a_sub_agent_has_the_model_that_the_call_names(place: Place) -> None:
    with place.serve("cloud") as server:
        assert post(server, place.store.add("laptop")).endswith("Done.")
    assert place.home.opened == ["pup", "cloud"]
    assert place.outcomes() == [("task 1", "read_file", "ok"), ("pup", "task", "ok")]


def test_two_sub_agents_of_one_model_load_it_once(place: Place) -> None:
    with place.serve("cloud", "cloud") as server:
        post(server, place.store.add("laptop"))
    assert place.home.opened == ["pup", "cloud"]
    assert [outcome for _, tool, outcome in place.outcomes() if tool == "task"] == ["ok", "ok"]


def test_a_key_gives_only_its_own_models(place: Place) -> None:
    key = place.store.add("one", lambda key: structs.replace(key, models=("pup",)))
    with place.serve("cloud") as server:
        assert post(server, key).endswith("Done.")
    assert place.home.opened == ["pup"]
    assert place.outcomes() == [("pup", "task", "failed")]


def test_only_providers_that_may_be_asked_are_models(place: Place) -> None:
    with place.serve("disk", "pup") as server:
        post(server, place.store.add("laptop"))
    assert place.home.opened == ["pup"]
    assert [outcome for _, _, outcome in place.outcomes()] == ["failed", "failed"]


def test_a_model_elsewhere_needs_the_right_to_the_network(place: Place) -> None:
    """Nobody approves, so what would ask is denied; a rule allows it."""
    with place.serve("cloud", address=FAR) as server:
        post(server, place.store.add("laptop"))
    assert place.home.opened == ["pup"]
    assert place.outcomes() == [("pup", "task", "denied")]
