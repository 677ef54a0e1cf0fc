"""Calls of one answer that run at the same time."""

import asyncio
from dataclasses import dataclass, field

import pytest

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.events import (
    CallbackEvent,
    EventCallback,
    FinishReason,
    Notice,
    Topic,
    ignore_events,
)
from shepherd.messages import INTERRUPTED, Role, ToolCall, ToolSpec
from shepherd.session import Session
from shepherd.tools.tool import ToolResult
from shepherd.turn import TurnLimits, run_turn
from tests.turn.test_run_turn import Recorder, assert_consistent, untimed

SCRIPT = """
call: task {"prompt": "a"}
call: task {"prompt": "b"}
call: task {"prompt": "c"}
call: read_file {"path": "x"}
call: task {"prompt": "d"}
---
text: done
"""


@dataclass
class Meeting:
    """Calls of `task` return once `members` of them run; the first to come returns last."""

    members: int = 3
    hang: bool = False
    present: list[str] = field(default_factory=list[str])
    stopped: list[str] = field(default_factory=list[str])
    seen: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    _leave: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        name = str(call.arguments.get("prompt", call.name))
        self.present.append(name)
        self.seen.append((name, len(self.present)))
        on_event(Notice(f"{name} works", Topic.TASK))
        leave = self._leave[name] = asyncio.Event()
        if len(self.present) >= self.members or call.name != "task" or name == "d":
            leave.set()
        if self.hang:
            leave.clear()
        try:
            await leave.wait()
        except asyncio.CancelledError:
            self.stopped.append(name)
            raise
        self.present.remove(name)
        for other in self.present[-1:]:
            self._leave[other].set()
        return ToolResult(f"result of {name}")


async def meet(
    recorder: Recorder, meeting: Meeting, limits: TurnLimits | None = None, script: str = SCRIPT
) -> tuple[Session, FinishReason]:
    session = Session(tools=[ToolSpec("task", "", parallel=True), ToolSpec("read_file", "")])
    backend = ScriptedBackend(parse_script(script))
    outcome = await run_turn(session, "hello", backend, meeting, recorder, limits)
    assert_consistent(session)
    return session, outcome.finish_reason


async def test_they_run_together_and_their_results_come_in_order() -> None:
    recorder, meeting = Recorder(), Meeting()
    session, reason = await meet(recorder, meeting)
    assert reason is FinishReason.STOP
    assert meeting.seen == [("a", 1), ("b", 2), ("c", 3), ("read_file", 1), ("d", 1)]
    results = [m.content for m in session.messages if m.role is Role.TOOL]
    assert results == [f"result of {name}" for name in ("a", "b", "c", "read_file", "d")]
    assert recorder.of(CallbackEvent.TOOL_RESULT) == results


async def test_their_events_carry_the_id_of_the_call() -> None:
    recorder = Recorder()
    session, _ = await meet(recorder, Meeting())
    ids = [call.id for call in session.messages[1].tool_calls]
    lines = [(text, at) for kind, text, _, at in recorder.events if kind is CallbackEvent.SYSTEM]
    works = [f"{name} works" for name in ("a", "b", "c", "read_file", "d")]
    assert lines == list(zip(works, ids, strict=True))


async def test_cancel_at_every_event_leaves_each_call_with_one_result() -> None:
    complete = Recorder()
    await meet(complete, Meeting())
    for index in range(len(complete.events)):
        recorder = Recorder(cancel_at=index)
        _, reason = await meet(recorder, Meeting())
        assert reason is FinishReason.CANCELLED
        assert untimed(recorder.events) == untimed(complete.events)[: index + 1]


async def test_a_cancelled_task_stops_all_of_them() -> None:
    session = Session(tools=[ToolSpec("task", "", parallel=True)])
    meeting, backend = Meeting(hang=True), ScriptedBackend(parse_script(SCRIPT))
    task = asyncio.create_task(run_turn(session, "hello", backend, meeting, ignore_events))
    while len(meeting.seen) < 3:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(meeting.stopped) == ["a", "b", "c"]
    assert [m.content for m in session.messages if m.role is Role.TOOL] == [INTERRUPTED] * 5
    assert_consistent(session)


async def test_a_call_made_too_often_ends_the_turn_after_the_calls_before_it() -> None:
    script = SCRIPT.replace('"b"', '"a"')
    recorder, meeting = Recorder(), Meeting(members=1)
    _, reason = await meet(recorder, meeting, TurnLimits(stop_after=2), script)
    assert reason is FinishReason.ERROR
    assert [name for name, _ in meeting.seen] == ["a"]
    assert len(recorder.of(CallbackEvent.TOOL_RESULT)) == 5


async def test_a_tool_that_polls_may_be_called_more_often() -> None:
    poll = 'call: check_command {"id": "1"}\n---\n'
    for count, expected in ((7, FinishReason.STOP), (8, FinishReason.ERROR)):
        session = Session(tools=[ToolSpec("check_command", "", polls=True)])
        backend = ScriptedBackend(parse_script(poll * count + "text: done"))
        limits = TurnLimits(reminder_after=1, stop_after=2)
        outcome = await run_turn(session, "x", backend, Meeting(), ignore_events, limits)
        assert outcome.finish_reason is expected
        results = [m.content for m in session.messages if m.role is Role.TOOL]
        assert ["was made" in result for result in results[:4]] == [False, False, False, True]
