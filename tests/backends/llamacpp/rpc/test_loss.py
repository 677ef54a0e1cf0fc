"""The engine ends when a worker is lost, and loses no conversation; runs without the RPC backend.

The model computes here. Its worker is a scripted one, which is lost at a moment of the test.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from shepherd.backends.llamacpp import LlamaCppBackend, engine
from shepherd.backends.llamacpp.rpc.protocol import probe
from shepherd.backends.llamacpp.rpc.relay import Relay
from shepherd.backends.llamacpp.rpc.workers import Workers
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import BackendError
from shepherd.events import Event
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.llamacpp.rpc.scripted_worker import scripted_worker
from tests.backends.llamacpp.support import GREEDY, PUP, settings
from tests.flat_events import flat
from tests.patience import PATIENCE, POLL

REASON = "it closed the connection"
ANSWER = 16
"""Tokens."""


class FailingWorkers(Workers):
    """Workers that are lost within an answer: before the third step of the engine from `doom` on.

    The test's own thread would be too late when the machine is busy.
    """

    steps_left: int | None = None

    def doom(self) -> None:
        """Lose the workers within the next answer."""
        self.steps_left = 3

    def check(self) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left == 0:
                self.relays[0].lose(REASON)
        super().check()


@pytest.fixture
def relay() -> Iterator[Relay]:
    with scripted_worker() as worker:
        yield Relay(probe(worker.address), PATIENCE)


@pytest.fixture
def workers(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> FailingWorkers:
    workers = FailingWorkers((relay,), (), ())

    def open_workers(_: LlamaCppSection) -> Workers:
        return workers

    monkeypatch.setattr(engine, "open_workers", open_workers)
    return workers


@pytest.fixture
async def backend(workers: FailingWorkers) -> AsyncIterator[LlamaCppBackend]:
    own = settings(context_size=512)
    backend = await LlamaCppBackend.load(PUP, own, GREEDY)
    yield backend
    await backend.aclose()


async def answer(backend: LlamaCppBackend) -> str:
    """A short answer."""
    texts: list[str] = []

    def receive(event: Event) -> bool:
        texts.append(flat(event).content)
        return True

    session = Session(messages=[Message.user("Say hello.")])
    prefilled = await backend.prefill_session(session, receive)
    await backend.generate_from_prefilled(prefilled, receive, ANSWER)
    return "".join(texts)


async def ended(backend: LlamaCppBackend) -> bool:
    async with asyncio.timeout(PATIENCE):
        while backend.alive:
            await asyncio.sleep(POLL)
    return True


async def test_a_loss_ends_the_answer_with_one_sentence(
    backend: LlamaCppBackend, relay: Relay, workers: FailingWorkers
) -> None:
    workers.doom()
    with pytest.raises(BackendError, match=f"{relay.info.address} was lost: {REASON}") as first:
        await answer(backend)
    assert "The conversation is kept" in str(first.value)
    assert await ended(backend)
    with pytest.raises(BackendError, match="was lost"):
        await answer(backend)


async def test_a_loss_while_nothing_runs_ends_the_engine(
    backend: LlamaCppBackend, relay: Relay
) -> None:
    assert await answer(backend)
    relay.lose(REASON)
    assert await ended(backend)


@pytest.mark.usefixtures("workers")
async def test_a_loss_during_loading_is_the_reason(relay: Relay) -> None:
    relay.lose(REASON)
    with pytest.raises(BackendError, match=REASON):
        await LlamaCppBackend.load(PUP, settings(context_size=512), GREEDY)


def test_a_released_relay_calls_nobody(relay: Relay) -> None:
    calls: list[int] = []
    workers = Workers((relay,), (), ())
    workers.watch(lambda: calls.append(1))
    workers.release()
    relay.lose(REASON)
    assert calls == []
