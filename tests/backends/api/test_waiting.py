"""What is told when, of an answer that comes in several pieces."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from shepherd.backends.api import stream
from shepherd.backends.api.answer import Answer, Reading
from shepherd.backends.api.stream import Framing
from shepherd.events import CallbackEvent, Event, PrefillProgress, Text
from tests.backends.api.plain_adapter import PlainAdapter, PlainDecoder
from tests.backends.api.support import Events, FakeTime, asking


class Body(httpx.AsyncByteStream):
    """A body that waits where a piece is None."""

    def __init__(self, *pieces: str | None) -> None:
        self.pieces = pieces
        self.waits = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if piece is not None:
                yield f"data: {json.dumps({'text': piece})}\n\n".encode()
                continue
            self.waits.set()
            await self.goes_on.wait()


class Failing(Events):
    """Raises at the event number `stop_at`."""

    def __call__(self, event: Event) -> bool:
        if not super().__call__(event):
            raise ZeroDivisionError
        return True


async def read(body: Body, events: Events) -> Answer:
    answer = Answer(PlainAdapter(), asking(), events)
    reading = Reading(PlainDecoder(), answer, FakeTime().timing().clock)
    async with asyncio.timeout(None) as limit:
        await reading.run(httpx.Response(200, stream=body), Framing.SSE, limit)
    return answer


async def test_text_is_told_before_there_is_a_wait() -> None:
    body, events = Body("a", "b", "c", None, "d", "e", "f"), Events()
    task = asyncio.create_task(read(body, events))
    await body.waits.wait()
    assert "".join(events.of(CallbackEvent.CONTENT)) == "abc"
    body.goes_on.set()
    await task
    assert "".join(events.of(CallbackEvent.CONTENT)) == "abcdef"


@pytest.mark.parametrize("stop_at", [0, 1])
async def test_who_is_told_no_does_not_wait(stop_at: int) -> None:
    body, events = Body("a", "b", None, "c"), Events(stop_at=stop_at)
    answer = await read(body, events)
    assert answer.cancelled
    assert events.of(CallbackEvent.CONTENT) == ["a", "b"][: stop_at + 1]


@pytest.mark.parametrize("stop_at", [0, 1])
async def test_an_error_of_the_callback_comes_out(stop_at: int) -> None:
    body = Body("a", "b", None, "c")
    with pytest.raises(ZeroDivisionError):
        await read(body, Failing(stop_at=stop_at))


async def test_the_place_in_a_queue_is_told_until_the_answer_begins() -> None:
    seen: list[Event] = []
    answer = Answer(PlainAdapter(), asking(), lambda e: not seen.append(e), prompt_tokens=7)
    waits = [PrefillProgress(0, 7, place=2, seconds=9.0), PrefillProgress(0, 7, place=1)]
    for comment in ("keep-alive", *(one.waits for one in waits), "keep-alive", "keep-alive"):
        answer.take_comment(comment)
    answer.take([stream.Text("a")])
    answer.take_comment(waits[0].waits)
    assert seen == [*waits, PrefillProgress(0, 7), Text("a")]


async def test_a_cancel_ends_the_wait() -> None:
    body, events = Body("a", "b", None, "c"), Events()
    task = asyncio.create_task(read(body, events))
    await body.waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events.of(CallbackEvent.CONTENT) == ["a", "b"]
