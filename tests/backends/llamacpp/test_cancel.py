"""Answers that are stopped on the way, and what is left behind."""

import asyncio
from itertools import count

import pytest

from shepherd.backends.base import Generation
from shepherd.events import Event, FinishReason, Topic
from shepherd.messages import Message
from tests.backends.llamacpp.support import (
    EXACT,
    LONG,
    Recorder,
    ask,
    conversation,
    generate,
    loaded,
)


async def test_cancelling_at_any_event_leaves_the_next_turn_working() -> None:
    async with loaded(parallel=1, **EXACT) as backend:
        whole = Recorder()
        await generate(backend, conversation("What is in src?", tools=True), whole)
        for index in count():  # as often as there are events: text may come in fewer pieces
            session = conversation("What is in src?", tools=True)
            recorder = Recorder(stop_at=index)
            result = await generate(backend, session, recorder)
            if len(recorder.events) <= index:
                assert result.finish_reason is not FinishReason.CANCELLED
                assert index > 2
                break
            assert result.finish_reason is FinishReason.CANCELLED
            assert len(recorder.events) == index + 1
            again = Recorder()
            await generate(backend, conversation("What is in src?", tools=True), again)
            assert again.text == whole.text


async def test_a_cancelled_answer_goes_on_from_what_was_shown() -> None:
    async with loaded() as backend:
        session = conversation("Hello")
        result = await generate(backend, session, Recorder(stop_at=1))  # behind the first token
        assert result.finish_reason is FinishReason.CANCELLED
        session.add(result.message)
        session.add(Message.user("Go on"))
        answer = await generate(backend, session)
        shown = len(result.message.content)
        assert shown > 0
        assert answer.stats.cached_tokens > result.stats.prompt_tokens


async def test_cancelling_in_prefill_keeps_what_was_decoded() -> None:
    async with loaded(n_batch=64) as backend:
        session = conversation(LONG)
        recorder = Recorder(stop_at=2)
        async with await backend.prefill_session(session, recorder) as prefilled:
            result = await backend.generate_from_prefilled(prefilled, recorder)
        assert result.finish_reason is FinishReason.CANCELLED
        assert len(recorder.events) == 3
        assert {name for _, _, name in recorder.events} == {Topic.PREFILL}
        read, _, total = recorder.events[-1][1].partition("/")
        answer = await generate(backend, session, max_tokens=5)
        assert answer.stats.prompt_tokens == int(total) > int(read)
        assert answer.stats.cached_tokens >= int(read)


async def test_prefill_tells_how_far_it_is_only_when_it_takes_several_steps() -> None:
    async with loaded(n_batch=64) as backend:
        recorder = Recorder()
        result = await generate(backend, conversation(LONG), recorder, 1)
        told = [text for _, text, name in recorder.events if name == Topic.PREFILL]
        total = result.stats.prompt_tokens
        assert told[0] == f"64/{total}"
        assert told[-1] == f"{total}/{total}"
        short = Recorder()
        await generate(backend, conversation("Hi"), short, 1)
        assert not [1 for _, _, name in short.events if name == Topic.PREFILL]


class Quitter(Recorder):
    """Cancels the task that it listens to at the event number `at`, counted from 1."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.task: asyncio.Task[Generation] | None = None

    def __call__(self, event: Event) -> bool:
        if len(self.events) + 1 == self.at and self.task is not None:
            self.task.cancel()
        return super().__call__(event)


async def test_a_cancelled_task_gives_its_slot_back() -> None:
    async with loaded(n_batch=32) as backend:
        for events in range(4):
            session, quitter = conversation(LONG), Quitter(events)
            quitter.task = asyncio.ensure_future(generate(backend, session, quitter))
            if not events:
                await asyncio.sleep(0)
                quitter.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await quitter.task
        assert await ask(backend, conversation(), "Hello")
        assert backend.running == 0


async def test_leaving_the_handle_gives_the_slot_back() -> None:
    async with loaded() as backend:
        session = conversation("Hello")
        async with await backend.prefill_session(session, Recorder()) as prefilled:
            assert backend.running == 1
            assert prefilled.prompt_tokens > 0
        assert backend.running == 0
        result = await generate(backend, session)
        assert result.stats.cached_tokens == result.stats.prompt_tokens - 1
