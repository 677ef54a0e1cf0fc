"""A generation as a stream of text."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from shepherd.backends.base import Generation, Prefilled
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import BackendError, ContextFullError
from shepherd.events import CallbackEvent, EventCallback, FinishReason, Text
from shepherd.messages import Message
from shepherd.server.generation import Answering, Choices, open_choices
from shepherd.session import Session
from tests.server.held import HeldBackend

SCRIPT = r"""
chunk: 2
think: first a thought
text: "then text\n```\ncode\n```\nmore text"
"""


def session() -> Session:
    return Session(messages=[Message.user("hi")])


async def texts(choices: Choices) -> AsyncIterator[tuple[CallbackEvent, str]]:
    """The text as it arrives."""
    async for piece in choices:
        if piece.event is not None:
            yield piece.event, piece.text


@pytest.mark.parametrize("turns", [0, 1, 7, 10_000])
async def test_a_slow_reader_gets_the_same_in_larger_pieces(turns: int) -> None:
    backend = ScriptedBackend(parse_script(SCRIPT))
    pieces: list[tuple[CallbackEvent, str]] = []
    async with open_choices(Answering(backend), session()) as choices:
        async for piece in texts(choices):
            pieces.append(piece)
            for _ in range(turns):
                await asyncio.sleep(0)
        message = (await choices.result(0)).message
    thoughts = [text for event, text in pieces if event is CallbackEvent.THINKING]
    assert "".join(thoughts) == message.reasoning == "first a thought"
    assert "".join(text for _, text in pieces[len(thoughts) :]) == message.content
    if turns == 10_000:  # all was there when it came back: one piece per run of a kind
        assert all(a[0] is not b[0] for a, b in pairwise(pieces[1:]))


async def test_leaving_early_stops_the_work() -> None:
    backend = HeldBackend(hold_generation=True)
    async with open_choices(Answering(backend), session()) as choices:
        async for _, text in texts(choices):
            assert text == "done"
            break
        while not backend.working:
            await asyncio.sleep(0)
    assert (backend.working, backend.stopped, backend.holding) == (0, 1, 0)


async def test_failures_come_where_they_happen() -> None:
    backend = ScriptedBackend(parse_script("full: 5\n---\ntext: a\nerror: gone"))
    with pytest.raises(ContextFullError):
        async with open_choices(Answering(backend), session()):
            raise AssertionError
    async with open_choices(Answering(backend), session()) as choices:
        assert [text async for _, text in texts(choices)] == ["a"]
        with pytest.raises(BackendError, match="gone"):
            await choices.result(0)
    assert backend.active == 0


class _AtOnce(ScriptedBackend):
    """Answers without a wait, as a provider whose whole answer has arrived."""

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        del prefilled, max_tokens
        callback(Text("hi"))
        return Generation(Message.assistant("hi"), FinishReason.STOP)


async def test_the_end_is_read_with_the_last_text() -> None:
    backend = _AtOnce(parse_script("text: hi"))
    async with open_choices(Answering(backend), session()) as choices:
        pieces = aiter(choices)
        assert (await anext(pieces)).text == "hi"
        with pytest.raises(StopIteration) as returned:  # it returns without a wait
            anext(pieces).__await__().__next__()
        assert returned.value.value.event is None
        result = choices.result(0)
        with pytest.raises(StopIteration):
            result.send(None)


async def test_a_reader_that_stops_ends_a_whole_answer() -> None:
    backend = HeldBackend(hold_generation=True)
    async with open_choices(Answering(backend), session()) as choices:
        results = asyncio.ensure_future(choices.results())
        while not backend.working:
            await asyncio.sleep(0)
        results.cancel()
        with pytest.raises(asyncio.CancelledError):
            await results
        assert (backend.working, backend.stopped) == (0, 1)
