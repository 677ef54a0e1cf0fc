"""A full queue, as the openai package sees it."""

import asyncio
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

import openai
import pytest

from shepherd.backends.base import Prefilled
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.messages import Message
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.server.generation import log_warnings
from shepherd.session import Session
from tests.patience import PATIENCE
from tests.server.harness import HI, RunningServer, ask, stream

Engine = RunningServer[LlamaCppBackend]


@dataclass
class Full:
    """A sequence that is held and a request that waits for it."""

    engine: Engine
    held: Prefilled
    waiting: socket.socket

    def let_go(self) -> None:
        """Free the sequence."""
        self.engine.do(self.held.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One request at a time, one that waits."""
    settings = LlamaCppSection(threads=1, max_queue=1)

    async def load() -> LlamaCppBackend:
        return await LlamaCppBackend.load(builtin_model(), settings, Sampling(temperature=0.0))

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), loop=loop) as running:
        yield running


@contextmanager
def filled(engine: Engine) -> Generator[Full]:
    session = Session(messages=[Message.user("hi")])
    held = engine.do(engine.backend.prefill_session(session, log_warnings))
    with engine.connect_and_post({"messages": HI}) as waiting:
        engine.until(lambda: engine.backend.running == 2)
        full = Full(engine, held, waiting)
        try:
            yield full
        finally:
            full.let_go()
    engine.until(lambda: engine.backend.running == 0)


@contextmanager
def asking(client: openai.OpenAI) -> Generator[list[str | None]]:
    """Ask in another thread; the answer is in the list behind the block."""
    answers: list[str | None] = []
    thread = Thread(target=lambda: answers.append(ask(client).choices[0].message.content))
    with client:
        thread.start()
        yield answers
        thread.join(2 * PATIENCE)


@pytest.mark.parametrize("how", [ask, stream])
def test_a_full_queue_says_when_to_come_again(engine: Engine, how: Any) -> None:
    with filled(engine), engine.client() as client:
        with pytest.raises(openai.InternalServerError) as caught:
            how(client)
        assert caught.value.status_code == 503
        assert caught.value.code == "server_busy"
        assert int(caught.value.response.headers["retry-after"]) >= 1


def test_who_waits_is_served_when_there_is_room(engine: Engine) -> None:
    with filled(engine) as full:
        full.let_go()
        assert b"200 OK" in full.waiting.recv(65_536)


def test_who_hangs_up_while_waiting_leaves_its_place(engine: Engine) -> None:
    with filled(engine) as full:
        full.waiting.close()
        engine.until(lambda: engine.backend.running == 1)
        with asking(engine.client()) as answers:
            engine.until(lambda: engine.backend.running == 2)
            assert answers == []
            full.let_go()
    assert answers[0]


def test_the_openai_package_comes_again_by_itself(engine: Engine) -> None:
    with filled(engine) as full, asking(engine.client().with_options(max_retries=8)) as answers:
        full.let_go()
    assert answers[0]
