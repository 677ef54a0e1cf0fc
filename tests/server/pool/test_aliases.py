"""Aliases of several models: what fails before its first token is tried elsewhere."""

import asyncio
import random
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from shepherd.backends.base import Backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.settings import Config
from shepherd.errors import AccessError, BusyError, InvalidRequestError, UnreachableError
from shepherd.events import EventCallback
from shepherd.server.pool.pool import Aliases, ModelPool
from shepherd.session import Session
from tests.server.harness import RunningServer, ask, joined, stream
from tests.server.pool.places import Home


class Refusing(ScriptedBackend):
    """Raises an error for each prompt."""

    def __init__(self, error: Exception) -> None:
        super().__init__(parse_script("text: never"), "refusing")
        self.error = error
        self.prompts = 0

    async def prefill_session(self, session: Session, callback: EventCallback) -> Any:
        self.prompts += 1
        raise self.error


@contextmanager
def serving(
    home: Home, refusing: dict[str, Refusing], **settings: Any
) -> Generator[RunningServer[ModelPool]]:
    async def opener(config: Config) -> Backend:
        backend = refusing.get(config.model.provider)
        return backend or await home.open_scripted(config)

    loop = asyncio.new_event_loop()
    pool = loop.run_until_complete(home.open(home.config(**settings), opener))
    with RunningServer(pool, loop=loop) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


CHAIN = {"smart": ["cloud", "relay", "pup"]}


@pytest.mark.parametrize(
    "error",
    [UnreachableError("no line"), AccessError("no key"), BusyError("full"), ValueError],
)
def test_a_failure_before_the_first_token_goes_to_the_next(home: Home, error: Any) -> None:
    refusing: dict[str, Refusing] = {}
    if error is ValueError:  # it can't be opened at all, as its model is unknown there
        home.failures["cloud"] = InvalidRequestError("no such model")
    else:
        refusing["cloud"] = Refusing(error)
    with serving(home, refusing, aliases=CHAIN) as server, server.client() as client:
        for _ in range(2):
            assert ask(client, model="smart").choices[0].message.content == "I am relay."
            assert joined(stream(client, model="smart")) == "I am relay."
    assert all(backend.prompts == 1 for backend in refusing.values()), (
        "it is tried last for a while"
    )


def test_the_error_of_the_last_one_is_told(home: Home) -> None:
    refusing = {"cloud": Refusing(UnreachableError("a")), "relay": Refusing(BusyError("b"))}
    aliases = {"smart": ["cloud", "relay"]}
    with (
        serving(home, refusing, aliases=aliases) as server,
        server.client() as client,
        pytest.raises(openai.InternalServerError) as failed,
    ):
        ask(client, model="smart")
    assert failed.value.status_code == 503


def test_a_wrong_request_is_not_tried_elsewhere(home: Home) -> None:
    refusing = {"cloud": Refusing(InvalidRequestError("bad"))}
    with (
        serving(home, refusing, aliases=CHAIN) as server,
        server.client() as client,
        pytest.raises(openai.BadRequestError),
    ):
        ask(client, model="smart")
    assert home.opened == ["pup"]


def test_an_answer_that_has_begun_ends_with_the_error(home: Home) -> None:
    home.scripts["cloud"] = "text: once upon\nerror: broke"
    with (
        serving(home, {}, aliases=CHAIN) as server,
        server.client() as client,
        pytest.raises(openai.APIError, match="broke"),
    ):
        stream(client, model="smart")
    assert home.opened == ["pup", "cloud"]


def test_a_failure_in_generating_before_text_goes_to_the_next(home: Home) -> None:
    home.scripts["cloud"] = "error: broke"
    with serving(home, {}, aliases=CHAIN) as server, server.client() as client:
        assert joined(stream(client, model="smart")) == "I am relay."


def test_weights_decide_how_often_each_comes_first() -> None:
    aliases = Aliases({"a": {"x": 3, "y": 1}, "b": ["y", "x"], "c": "z"}, random.Random(1))
    first = Counter(aliases.order("a")[0] for _ in range(4000))
    assert 2800 < first["x"] < 3200
    assert {tuple(sorted(aliases.order("a"))) for _ in range(20)} == {("x", "y")}
    assert aliases.order("b") == ["y", "x"]
    assert aliases.order("c") == ["z"]


def test_a_target_that_does_not_exist_is_logged_once(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    aliases = {"smart": ["cluod", "relay"]}
    with serving(home, {}, aliases=aliases) as server, server.client() as client:
        for _ in range(2):
            assert ask(client, model="smart").choices[0].message.content == "I am relay."
    assert caplog.text.count("The alias 'smart' names 'cluod', which is not a model") == 1
