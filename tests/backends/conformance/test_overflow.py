"""A conversation that is longer than the context, in each vendor's words."""

import pytest

from shepherd.errors import ContextFullError
from shepherd.events import CallbackEvent, FinishReason, Topic
from shepherd.messages import Message, Role, ToolCall
from shepherd.session import Session
from tests.backends.api.support import Events
from tests.backends.conformance.said import AFTER, HELLO
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subject import Subject
from tests.backends.conformance.subjects.all import every
from tests.backends.conformance.talk import asking, goes_on, turn

LIMIT = 1024
"""Tokens that the upstream takes."""

EVERY = pytest.mark.parametrize("subject", every(Scenario.OVERFLOW), ids=repr)


def long_session() -> Session:
    """More than the upstream takes by any count: turns with calls, alone and two at once."""
    session = asking(tools=True)
    for number in range(14):
        calls = tuple(
            ToolCall(f"call_{number}_{n}", "read_file", {"path": f"file-{n}"})
            for n in range(1 + number % 2)
        )
        session.add(Message.user(f"Question {number}: " + "why " * 40))
        session.add(Message.assistant("Let me look.", tool_calls=calls))
        for call in calls:
            session.add(Message.tool(call, "line of the file " * 20))
        session.add(Message.assistant("Because. " * 20))
    return session


@EVERY
async def test_what_is_too_long_is_evicted_and_answered(subject: Subject) -> None:
    session, events = long_session(), Events()
    before = len(session.messages)
    async with subject.opened(HELLO, AFTER, limit=LIMIT) as room:
        outcome = await turn(session, room.backend, events)
        answer = session.messages[-1].content
        await goes_on(session, room.backend, AFTER.content)
    assert outcome.finish_reason is FinishReason.STOP
    assert answer == HELLO.content
    evictions = [text for _, text, name, _ in events.all if name == Topic.EVICTION]
    assert evictions
    assert 4 <= len(session.messages) < before
    assert session.messages[0].role is Role.USER
    assert [event for event, *_ in events.all][-3:] == [
        *(CallbackEvent.CONTENT, CallbackEvent.STATS, CallbackEvent.STOP)
    ]


@EVERY
async def test_what_can_never_fit_is_refused_and_leaves_no_trace(subject: Subject) -> None:
    session, events = asking(), Events()
    session.add(Message.user("Hi."))
    session.add(Message.assistant("Hello."))
    before = list(session.messages)
    async with subject.opened(AFTER, limit=LIMIT) as room:
        with pytest.raises(ContextFullError, match="does not fit"):
            await turn(session, room.backend, events, prompt="word " * 6000)
        assert session.messages in (before, [])  # some don't say how much is too much
        await goes_on(session, room.backend, AFTER.content)
