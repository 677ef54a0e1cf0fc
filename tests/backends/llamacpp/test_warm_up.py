"""What is done between loading and the first request, and what is left behind at the end."""

import asyncio
from pathlib import Path

import pytest

from shepherd.backends.base import Concurrency
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.engine import Engine
from tests.backends.llamacpp.support import PUP, ask, conversation, loaded, settings


def engine_of(backend: LlamaCppBackend) -> Engine:
    return backend._worker.loaded.result()  # pyright: ignore[reportPrivateUsage] - what it owns


@pytest.mark.parametrize("kind", ["llama", "moe", "gemma", "mamba", "hybrid"])
def test_warming_up_leaves_nothing_behind(kind: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(kind)
    engine = Engine.load(path, settings(), Concurrency(2), lambda job, update: None)
    for _ in engine.warm_up():
        assert all(engine.context.last_position(sequence) == -1 for sequence in range(2))
    assert engine.context.decoded_tokens == 0
    engine.close()


async def test_an_idle_engine_warms_up_and_answers_as_before() -> None:
    async with loaded() as backend:
        at_once = await ask(backend, conversation(), "Hello")
    async with loaded(draft_model=str(PUP)) as backend:
        vocab = engine_of(backend).model.vocab
        async with asyncio.timeout(60):
            while "token_bytes" not in vars(vocab):  # nothing else asks for them here
                await asyncio.sleep(0.01)
        assert await ask(backend, conversation(), "Hello") == at_once


async def test_closing_frees_everything_before_it_returns(llama: Path) -> None:
    """So another model can be loaded into the same memory."""
    backend = await LlamaCppBackend.load(llama, settings(draft_model=str(llama)))
    engine = engine_of(backend)
    assert engine.model.handle
    task = asyncio.ensure_future(ask(backend, conversation(), "hello"))
    await asyncio.sleep(0.01)
    await backend.aclose()
    assert not engine.model.handle
    assert not engine.context.handle
    await asyncio.gather(task, return_exceptions=True)
