"""A connection that ends at any byte of a recorded stream."""

import re
from dataclasses import dataclass

import pytest

from shepherd.backends.base import Generation
from shepherd.events import CallbackEvent, FinishReason, Topic
from tests.backends.api.support import Events
from tests.backends.api.upstream import Received, Reply, Upstream
from tests.backends.conformance.said import AFTER, Said, Understood
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subjects.all import wired
from tests.backends.conformance.talk import (
    Files,
    asking,
    check_order,
    goes_on,
    question,
    shown,
    turn,
)
from tests.backends.conformance.wired import AdapterSubject
from tests.examples import some

HALF_CALL = "<tool_call>"
"""With this begins a call that was cut, as text."""


@dataclass
class Cutter:
    """Cuts the first answer behind `cut` bytes, and gives the next one whole."""

    subject: AdapterSubject
    stream: bytes
    cut: int = 0
    first: bool = True

    def __call__(self, request: Received) -> Reply:
        if not self.first:
            return self.subject.reply(self.stream)
        self.first = False
        return self.subject.reply(self.stream, cut_after=self.cut, until_close=self.cut % 2 == 0)


def check_broken(said: Said, generation: Generation, events: Events) -> None:
    """What a cut answer shows is the beginning of the whole; a call is made as a whole or not."""
    got = generation.message
    text, _, half = got.content.partition(HALF_CALL)
    assert said.content.startswith(text.rstrip("\n") if half else text)
    assert said.thought.startswith(got.reasoning)
    assert shown(events, CallbackEvent.THINKING) == got.reasoning
    assert shown(events, CallbackEvent.CONTENT) == got.content
    made = tuple((call.name, call.arguments) for call in got.tool_calls)
    assert made == said.calls[: len(made)]
    if generation.finish_reason is FinishReason.ERROR:
        told = [text for _, text, name, _ in events.all if name == Topic.WARNING]
        assert len(told) == 1
        assert told[0].startswith("The answer was cut off")
        assert not half or "read_file was not complete and is not run" in told[0]
    else:
        assert Understood.of(got) == Understood(said.content, said.thought, said.calls)
        assert generation.finish_reason is FinishReason.TOOL_CALLS


def places(stream: bytes, name: str) -> list[int]:
    """Where to cut: around the ends of lines, and in some of the other places."""
    ends = (match.end() for match in re.finditer(rb"\n|\Z", stream))
    around = {end + shift for end in ends for shift in (-2, -1, 0, 1)}
    whole = range(len(stream) + 1)
    ends_cut = some(sorted(around & {*whole}), name, len(around) // 3)
    return sorted({*ends_cut, *some(whole, name, len(whole) // 24)})


@pytest.mark.long
@pytest.mark.timeout(900)  # some thousand requests in a long run
@pytest.mark.parametrize("subject", wired(Scenario.CUT), ids=repr)
async def test_cut_at_any_byte(subject: AdapterSubject) -> None:
    """Asked again only if nothing was shown; each of the histories that come of it goes on."""
    said = subject.recorded
    cutter = Cutter(subject, subject.stream(said))
    distinct: dict[str, int] = {}
    async with Upstream(cutter) as up:
        backend = subject.backend_at(up.url)
        for cut in places(cutter.stream, repr(subject)):
            cutter.cut, cutter.first = cut, True
            events, before = Events(), len(up.requests)
            generation = await backend.generate_from_session(question(), events)
            check_order(events)
            asked = len(up.requests) - before
            if asked == 1:
                check_broken(said, generation, events)
                distinct.setdefault(repr(Understood.of(generation.message)), cut)
            else:
                assert asked == 2
                assert not distinct
                assert Understood.of(generation.message) == Understood(
                    said.content, said.thought, said.calls
                )
                assert shown(events) == said.thought + said.content
        await backend.aclose()
    assert len(distinct) > 1
    for cut in distinct.values():
        await _goes_on(subject, cutter.stream, cut)


async def _goes_on(subject: AdapterSubject, stream: bytes, cut: int) -> None:
    """A turn whose first answer is cut runs whole calls, and the session takes another turn."""
    session, files, said = asking(tools=True, thinking=True), Files(), subject.recorded
    replies = [subject.reply(stream, cut_after=cut), *[subject.answer(AFTER)] * 2]
    async with Upstream(replies) as up:
        backend = subject.backend_at(up.url)
        await turn(session, backend, files=files)
        await goes_on(session, backend, AFTER.content)
        await backend.aclose()
    subject.check_all(up.requests)
    ran = tuple((call.name, call.arguments) for call in files.ran)
    assert ran == said.calls[: len(ran)]
    assert len(up.requests) == (3 if ran else 2)
