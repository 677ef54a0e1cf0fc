"""A conversation's own context grows by a sequence where a second request comes beside it."""

import asyncio
from pathlib import Path

import pytest

from shepherd.backends.base import Concurrency
from shepherd.backends.llamacpp import LlamaCppBackend
from tests.backends.llamacpp.support import PUP, Recorder, ask, conversation, loaded
from tests.backends.llamacpp.tiny import write_mamba, write_plamo2


def sequences(backend: LlamaCppBackend) -> int:
    return next(tier.entries for tier in backend.status.cache_tiers if tier.name == "memory")


async def hold(backend: LlamaCppBackend, count: int) -> None:
    """Prefill `count` prompts, all of which keep their sequence until the last is ready."""
    session = conversation("Hello")
    handles = [await backend.prefill_session(session, Recorder()) for _ in range(count)]
    for handle in handles:
        async with handle:
            await backend.generate_from_prefilled(handle, Recorder(), 4)


async def test_a_conversation_alone_has_one_sequence() -> None:
    async with loaded(PUP, parallel=Concurrency(1, maximum=3)) as backend:
        session = conversation()
        for question in ("Hello", "Who are you?", "thanks"):
            await ask(backend, session, question)
        assert sequences(backend) == 1


async def test_requests_beside_it_open_more() -> None:
    async with loaded(PUP, parallel=Concurrency(1, maximum=3)) as backend:
        await asyncio.wait_for(hold(backend, 3), 60)
        assert sequences(backend) == 3


async def test_beyond_the_most_requests_wait() -> None:
    async with loaded(PUP, parallel=Concurrency(1, maximum=2)) as backend:
        session = conversation("Hello")
        async with await backend.prefill_session(session, Recorder()):
            async with await backend.prefill_session(session, Recorder()):
                waiting = asyncio.ensure_future(backend.prefill_session(session, Recorder()))
                await asyncio.sleep(0.05)
                assert not waiting.done()
            async with await asyncio.wait_for(waiting, 60):
                assert sequences(backend) == 2


async def test_answers_beside_each_other_are_those_alone() -> None:
    async with loaded(PUP, parallel=Concurrency(1, maximum=4)) as backend:
        alone = [await ask(backend, conversation(), q) for q in ("Hello", "Who are you?")]
        both = await asyncio.gather(
            *(ask(backend, conversation(), q) for q in ("Hello", "Who are you?"))
        )
        assert both == alone


async def test_memory_with_a_state_per_sequence_does_not_grow(tmp_path: Path) -> None:
    model = tmp_path / "mamba.gguf"
    write_mamba(model)
    async with loaded(model, parallel=Concurrency(1, maximum=4), context_size=512) as backend:
        session = conversation("Hello")
        async with await backend.prefill_session(session, Recorder()):
            waiting = asyncio.ensure_future(backend.prefill_session(session, Recorder()))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiting), 0.2)
        async with await asyncio.wait_for(waiting, 60):
            assert sequences(backend) == 1


async def test_several_answers_come_one_after_another_where_a_batch_may_have_one(
    tmp_path: Path,
) -> None:
    model = write_plamo2(tmp_path / "plamo2.gguf")
    session = conversation("Hello")
    async with loaded(model, parallel=Concurrency(4, maximum=4)) as backend:
        prompts = await backend.prefill_choices(session, Recorder(), 4)
        answers = [backend.generate_from_prefilled(p, Recorder(), 8) for p in prompts]
        generated = await asyncio.wait_for(asyncio.gather(*answers), 60)
        for prompt in prompts:
            prompt.release()
        assert [answer.stats.completion_tokens for answer in generated] == [8] * 4
        assert sequences(backend) == 1
