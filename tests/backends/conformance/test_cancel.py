"""Nobody wants to hear more: at every letter of an answer, by the callback and by the task."""

import asyncio
from dataclasses import dataclass

import pytest

from shepherd.events import CallbackEvent, Event, FinishReason, TextEvent
from shepherd.messages import Role
from tests.backends.api.support import Events
from tests.backends.conformance.said import AFTER, THOUGHT, TWO_CALLS, Said
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subject import Subject
from tests.backends.conformance.subjects.all import every
from tests.backends.conformance.talk import asking, goes_on, shown, turn
from tests.flat_events import TEXT_KINDS

ANSWERED = {*TEXT_KINDS, CallbackEvent.STATS}
"""Events that only an answer brings, so that the subject's next one is due."""

EVERY = pytest.mark.parametrize("subject", every(Scenario.CANCEL), ids=repr)


@dataclass
class Leaving(Events):
    """Says no, or cancels the task, as soon as so many letters were shown."""

    letters: int = 0
    task: asyncio.Task[object] | None = None

    def __call__(self, event: Event) -> bool:
        super().__call__(event)
        if len(shown(self)) < self.letters or not isinstance(event, TextEvent):
            return True
        if self.task is not None:
            self.task.cancel()
        return self.task is not None


def held(subject: Subject) -> Said:
    """An answer that does not come to its end."""
    thought = "" if Scenario.THINKING in subject.lacks else THOUGHT.thought
    return Said(thought, ("Zw", "🐑"), held=True)


@EVERY
@pytest.mark.parametrize("how", ["callback", "task"])
async def test_cancelling_frees_the_upstream_and_the_session_goes_on(
    subject: Subject, how: str
) -> None:
    said = held(subject)
    letters = len(said.thought + said.content)
    pairs = [part for _ in range(letters) for part in (said, AFTER)]
    async with subject.opened(*pairs) as room:
        for number in range(1, letters + 1):
            session, events = asking(thinking=bool(said.thought)), Leaving(letters=number)
            asked = asyncio.create_task(turn(session, room.backend, events))
            if how == "task":
                events.task = asked
                with pytest.raises(asyncio.CancelledError):
                    await asked
            else:
                assert (await asked).finish_reason is FinishReason.CANCELLED
            await room.released()
            kept = session.messages[1]
            assert kept.reasoning + kept.content == shown(events)
            assert kept.content.startswith(said.content) or said.content.startswith(kept.content)
            await goes_on(session, room.backend, AFTER.content)


@EVERY
async def test_cancelling_at_every_event_behind_the_text(subject: Subject) -> None:
    """Also between the calls and their results, each of which gets one."""
    calls = TWO_CALLS[: 1 if Scenario.CALLS in subject.lacks else 2]
    said, number = Said(text=("Hm.",), calls=calls), 0
    async with subject.opened(*[part for _ in range(20) for part in (said, AFTER)]) as room:
        while True:
            session, events = asking(tools=True), Events(stop_at=number)
            outcome = await turn(session, room.backend, events)
            if outcome.finish_reason is FinishReason.STOP:
                break
            assert outcome.finish_reason is FinishReason.CANCELLED
            assert len(events.all) == number + 1
            if not any(e in ANSWERED for e, *_ in events.all):
                number += 1
                continue
            made = [c for m in session.messages for c in m.tool_calls]
            results = [m for m in session.messages if m.role is Role.TOOL]
            assert [m.tool_call_id for m in results] == [c.id for c in made]
            await goes_on(session, room.backend, AFTER.content)
            number += 1
    assert number > 4
