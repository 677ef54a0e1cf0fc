"""Hundreds of turns, two thousand in a long run, against a small window, with guessed counts."""

from dataclasses import dataclass

import pytest

from shepherd.events import CallbackEvent, Event, FinishReason
from shepherd.messages import Message, Role, ToolCall
from shepherd.session import Session
from shepherd.turn import run_turn
from tests.examples import examples
from tests.flat_events import flat
from tests.turn.guessing import Guessing, Reader

TURNS, WINDOW = examples(2000), 4096


@dataclass(frozen=True)
class Work:
    """What was done until some turn, in operations."""

    requests: int
    counted: int

    @classmethod
    def by(cls, backend: Guessing) -> "Work":
        return cls(backend.requests, backend.counted)

    def since(self, before: "Work") -> "Work":
        return Work(self.requests - before.requests, self.counted - before.counted)


def answer(session: Session) -> Message:
    """Reads two files, then says something; words change from turn to turn."""
    last = session.messages[-1]
    if last.role is Role.USER:
        calls = [
            ToolCall(f"{last.content[:6]}-{n}", "read_file", {"path": f"{last.content} {n}"})
            for n in range(2)
        ]
        return Message.assistant("I look.", tool_calls=tuple(calls))
    return Message.assistant(f"{last.tool_call_id}: " + "all is well, " * 20)


@pytest.mark.long
@pytest.mark.parametrize(
    ("style", "known"),
    [("exact", "limit"), ("nothing", "limit"), ("exact", "nothing"), ("nothing", "nothing")],
)
async def test_a_conversation_never_ends(style: str, known: str) -> None:
    """No error, no growth, and the last turns cost what early ones did."""
    backend = Guessing(WINDOW, 0.31, style, answer, known == "limit")
    session, errors, marks = Session("Be brief. " * 20), list[str](), list[Work]()

    def callback(event: Event) -> bool:
        kind, content, _, _ = flat(event)
        if kind is CallbackEvent.ERROR:
            errors.append(content)
        return True

    max_length = 0
    for turn in range(TURNS):
        if turn % (TURNS // 4) == 0:
            marks.append(Work.by(backend))
        outcome = await run_turn(session, f"{turn:05} what now?", backend, Reader(600), callback)
        assert outcome.finish_reason is FinishReason.STOP
        max_length = max(max_length, len(session.messages))
    marks.append(Work.by(backend))
    assert errors == []
    assert max_length < WINDOW // 10
    assert len(session.ledger.counts) == len(session.messages) > 10
    second, last = marks[2].since(marks[1]), marks[4].since(marks[3])
    assert last.requests <= 1.05 * second.requests
    assert last.counted <= 1.05 * second.counted
    if known == "limit":
        assert backend.overflows == 0
