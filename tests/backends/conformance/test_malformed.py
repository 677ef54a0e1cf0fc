"""Streams as no vendor documents them."""

import json
from typing import Any

import pytest

from shepherd.backends.api.stream import Framing
from shepherd.messages import Message, message_from_json, message_to_json
from tests.backends.conformance.mutations import LINE_NOISE, SSE_NOISE, mutated
from tests.backends.conformance.reading import Outcome, read
from tests.backends.conformance.said import WHOLE, Said, Understood
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subjects.all import wired
from tests.backends.conformance.talk import question
from tests.backends.conformance.wired import AdapterSubject
from tests.examples import some

EVERY = pytest.mark.parametrize("subject", wired(Scenario.MALFORMED), ids=repr)


def whole_of(subject: AdapterSubject) -> Said:
    return WHOLE.silent if Scenario.THINKING in subject.lacks else WHOLE


def check_whole(subject: AdapterSubject, outcome: Outcome) -> None:
    """Nothing is missing, nothing was added."""
    said = whole_of(subject)
    told = Understood(said.content, said.thought, said.calls)
    assert Understood.of(outcome.generation.message) == told
    assert outcome.broken == ""


def is_lines(subject: AdapterSubject) -> bool:
    return subject.adapter("http://127.0.0.1:1").framing is Framing.NDJSON


@EVERY
async def test_noise_between_events_says_nothing(subject: AdapterSubject) -> None:
    frames = subject.frames(whole_of(subject))
    for noise in LINE_NOISE if is_lines(subject) else SSE_NOISE:
        for place in some(range(len(frames)), f"{subject}{noise}", 3):
            stream = [*frames[:place], noise, *frames[place:]]
            check_whole(subject, await read(subject, question(), stream))


@EVERY
async def test_other_ends_of_lines_and_a_mark_at_the_beginning(subject: AdapterSubject) -> None:
    stream = subject.stream(whole_of(subject))
    for changed in (
        stream.replace(b"\n", b"\r\n"),
        stream.replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + stream,
        b"\n\n" + stream,
        b"\xef\xbb\xbf" + stream.replace(b"\n", b"\r\n"),
        stream.replace(b"data: ", b"data:"),
        stream.rstrip(b"\n"),
    ):
        check_whole(subject, await read(subject, question(), [changed]))
        check_whole(subject, await read(subject, question(), [bytes([b]) for b in changed]))


@EVERY
async def test_values_of_any_type_in_any_place(subject: AdapterSubject) -> None:
    """Nothing is raised, what is told is text, and the next request is one that the API takes."""
    seen: set[str] = set()
    streams = list(mutated(subject.frames(whole_of(subject))))
    for frames in some(streams, repr(subject), len(streams) // 4):
        outcome = await read(subject, question(), frames)
        message = outcome.generation.message
        kept = json.dumps(message_to_json(message), ensure_ascii=False, allow_nan=False)
        kept.encode()
        assert message_from_json(json.loads(kept)) == message
        if kept in seen:
            continue
        seen.add(kept)
        session = question()
        if message.content or message.reasoning or message.tool_calls:
            session.add(message)
        for call in message.tool_calls:
            session.add(Message.tool(call, "It says nothing."))
        subject.check_next(session)
    assert len(seen) > 5


@EVERY
async def test_arguments_nested_too_deeply_are_no_call(subject: AdapterSubject) -> None:
    """They could be read, but not be written, counted or sent again: the session would be lost."""
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    said = Said(text=("x",), calls=(("read_file", {"path": deep}),))
    session = question()
    outcome = await read(subject, session, subject.frames(said))
    assert outcome.generation.message.tool_calls == ()
    session.add(outcome.generation.message)
    session.add(Message.user("Go on."))
    subject.check_next(session)
