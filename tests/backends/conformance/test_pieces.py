"""A recorded stream is the same answer however the network cuts it."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.api.support import Events
from tests.backends.api.upstream import Upstream
from tests.backends.conformance.reading import Outcome, read
from tests.backends.conformance.said import UNICODE, WHOLE, Said, Understood
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subjects.all import wired
from tests.backends.conformance.talk import question
from tests.backends.conformance.wired import AdapterSubject
from tests.examples import examples, some

EVERY = pytest.mark.parametrize("subject", wired(Scenario.UNICODE), ids=repr)


@cache
def recorded(subject: AdapterSubject) -> tuple[Said, bytes]:
    """All that a subject can say, unicode in its text."""
    said = Said(WHOLE.thought, UNICODE.text, WHOLE.calls)
    said = said.silent if Scenario.THINKING in subject.lacks else said
    return said, subject.stream(said)


def check(subject: AdapterSubject, outcome: Outcome) -> None:
    """It is the whole."""
    said, _ = recorded(subject)
    told = Understood(said.content, said.thought, said.calls)
    assert Understood.of(outcome.generation.message) == told
    assert outcome.broken == ""
    texts = [text for _, text, _ in outcome.events.joined()]
    assert texts[: len(texts) - 1 - len(said.calls)] == [
        *filter(None, [said.thought, said.content])
    ]


@EVERY
async def test_in_two_pieces(subject: AdapterSubject) -> None:
    """Cut within letters of several bytes, at ends of lines, and here and there."""
    _, stream = recorded(subject)
    places = [n for n in range(1, len(stream)) if stream[n] & 0x80 or stream[n - 1] == 10]
    cuts = some(sorted({*places, *range(1, len(stream), 29)}), repr(subject), 24)
    for cut in cuts:
        check(subject, await read(subject, question(), [stream[:cut], stream[cut:]]))


@EVERY
@settings(max_examples=examples(15, 4))
@given(st.data())
async def test_in_any_pieces(subject: AdapterSubject, data: st.DataObject) -> None:
    _, stream = recorded(subject)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=40).map(sorted))
    ends = [*places, len(stream)]
    pieces = [stream[a:b] for a, b in zip([0, *places], ends, strict=True)]
    check(subject, await read(subject, question(), pieces))


@EVERY
async def test_byte_by_byte_over_http(subject: AdapterSubject) -> None:
    """Each byte in a chunk of its own, and the network puts some of them together."""
    said, stream = recorded(subject)
    async with Upstream([subject.reply([bytes([byte]) for byte in stream])]) as up:
        backend = subject.backend_at(up.url)
        generation = await backend.generate_from_session(question(), Events())
        await backend.aclose()
    told = Understood(said.content, said.thought, said.calls)
    assert Understood.of(generation.message) == told
