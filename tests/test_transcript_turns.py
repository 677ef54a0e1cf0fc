"""Whatever interrupts a turn, the session file loads and the next turn works."""

import asyncio
from pathlib import Path

import pytest

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.events import Event, EventCallback, FinishReason, ignore_events
from shepherd.messages import Role, ToolCall
from shepherd.session import Session
from shepherd.tools.tool import ToolResult
from shepherd.transcript import SessionStore
from shepherd.transcript.records import repaired
from shepherd.turn import run_turn

SCRIPT = """chunk: 4
think: let me see
text: I will look.
call: grep {}
call: read_file {}
---
text: And once more.
call: grep {"again": 1}
---
text: All done.
---
text: The next answer.
---
text: The next answer.
---
text: The next answer.
---
text: The next answer.
"""


class Echo:
    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult(f"ran {call.name}")


class Interrupter:
    """A callback that interrupts at one event."""

    def __init__(self, at: int, *, task: asyncio.Task[object] | None = None) -> None:
        self.left = at
        self.task = task

    def __call__(self, _event: Event) -> bool:
        self.left -= 1
        if self.left != 0:
            return True
        if self.task is None:
            return False
        self.task.cancel()
        return True


def listen(_event: Event) -> bool:
    return True


def fail(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize("way", ["callback", "task"])
async def test_a_turn_interrupted_at_any_event(tmp_path: Path, way: str) -> None:
    store = SessionStore(tmp_path)
    at, left = 0, 0
    while left <= 0:
        at += 1
        backend = ScriptedBackend(parse_script(SCRIPT))
        transcript = store.create(tmp_path, "m", "s", fail)
        session = Session("s", journal=transcript, id=transcript.header.id)
        interrupter = Interrupter(at)
        turn = asyncio.create_task(run_turn(session, "go", backend, Echo(), interrupter))
        interrupter.task = turn if way == "task" else None
        await asyncio.gather(turn, return_exceptions=True)
        check_saved(store, session)
        outcome = await run_turn(session, "on", backend, Echo(), listen)
        assert outcome.finish_reason is FinishReason.STOP
        assert session.messages[-1].content
        check_saved(store, session)
        transcript.close()
        left = interrupter.left  # above 0 once the turn has fewer events
    assert at > 20


def check_saved(store: SessionStore, session: Session) -> None:
    """The file holds just what the session holds, and that needs no repair."""
    saved = store.read(session.id)
    assert list(saved.messages) == session.messages
    assert saved.warnings == ()
    whole = repaired(enumerate(session.messages))
    assert [message for _, message in whole] == session.messages
    assert session.messages[0].role is Role.USER
