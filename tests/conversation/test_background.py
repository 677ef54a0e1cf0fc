"""Background commands of a conversation: the notes about their end, and their end with it."""

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from shepherd.config.load import load_config
from shepherd.conversation.build import open_conversation
from shepherd.conversation.commands.table import named_command, output_of
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.events import CallbackEvent, Event, EventCallback, Topic, ignore_events
from shepherd.messages import Role
from shepherd.tools.permissions.approval import Approval, Choice
from shepherd.turn import run_turn
from tests.approvers import ScriptedApprover
from tests.flat_events import flat
from tests.tools.sandbox.boxes import LAYERED, need
from tests.tools.workshop import until

SCRIPT = """
call: execute_command {"command": "echo x; cat go; exit 4", "background": true, "live": true}
---
text: started
---
text: I see.
"""


def scripted(base: Path, text: str, mode: str = "all") -> AbstractAsyncContextManager[Conversation]:
    """A conversation with a scripted model, which may do all."""
    script, work = base / "script", base / "work"
    script.write_text(text)
    work.mkdir()
    env = {"HOME": str(base)}
    overrides = {
        "model.name": f"script:{script}",
        "permissions.approve": mode,
        "terminal.save_sessions": False,
    }
    return open_conversation(load_config(work, env, overrides), env, work, SessionStart())


async def test_user_and_model_read_that_a_command_has_ended(tmp_path: Path) -> None:
    async with scripted(tmp_path, SCRIPT) as conversation:
        work = conversation.cwd
        os.mkfifo(work / "go")
        notices: list[str] = []
        conversation.notices.listen(notices.append)
        backend, tools = await conversation.backend(), conversation.tool_runner()

        async def ask(prompt: str, listen: EventCallback = ignore_events) -> None:
            session, limits = conversation.session, conversation.limits
            await run_turn(session, prompt, backend, tools, listen, limits)

        await ask("start")
        [command] = conversation.background.all
        (work / "go").write_text("")
        await until(lambda: any("Background command 1" in text for text in notices))
        text = f"Background command 1 (echo x; cat go; exit 4) {command.state}."
        assert "ended with exit code 4 after" in text
        assert text in notices
        await ask("go on")
        prompts = [m.content for m in conversation.session.messages if m.role is Role.USER]
        assert f"[{text}]" in prompts[-1]
        folder = conversation.paths.spill
        assert len([*folder.iterdir()]) == 1
    assert [*folder.iterdir()] == []


KILLED = """
call: execute_command {"command": "sleep 3600", "background": true}
---
call: get_date {}
---
text: done
"""


async def test_an_end_is_shown_once(tmp_path: Path) -> None:
    async with scripted(tmp_path, KILLED) as conversation:
        notices: list[str] = []
        conversation.notices.listen(notices.append)
        shown: list[str] = []
        ended = asyncio.Event()

        def listen(event: Event) -> bool:
            kind, content, name, _ = flat(event)
            if kind is CallbackEvent.TOOL_RESULT and name == "execute_command":
                command, argument = named_command("/jobs kill 1")
                kill = asyncio.ensure_future(output_of(command, conversation, argument))
                kill.add_done_callback(lambda task: (shown.append(task.result()), ended.set()))
            if kind is CallbackEvent.SYSTEM and name == Topic.HINT:
                shown.append(content)
            return True

        await run_turn(
            conversation.session,
            "start",
            await conversation.backend(),
            conversation.tool_runner(),
            listen,
            conversation.limits,
        )
        await ended.wait()
        assert [text.partition(" after")[0] for text in shown] == ["command 1 (sleep 3600): killed"]
        assert notices == []


CHANGING = """
call: execute_command {"command": "sleep 0.6; echo 1 > made", "background": true}
---
text: started
---
text: I see.
"""


@pytest.mark.parametrize("is_answered", [True, False])
async def test_changes_wait_for_the_next_prompt(tmp_path: Path, *, is_answered: bool) -> None:
    need(LAYERED[0])
    nobody = Approval(Choice.DENY, unanswered=True)
    approver = ScriptedApprover([nobody, Approval(Choice.ONCE) if is_answered else nobody])
    notices: list[str] = []
    async with scripted(tmp_path, CHANGING, "ask") as conversation:
        conversation.notices.listen(notices.append)
        backend, tools = await conversation.backend(), conversation.tool_runner(approver)
        session, limits = conversation.session, conversation.limits
        await run_turn(session, "start", backend, tools, ignore_events, limits)
        await until(lambda: any("its changes wait for an answer" in text for text in notices))
        await run_turn(session, "go on", backend, tools, ignore_events, limits)
        prompts = [m.content for m in session.messages if m.role is Role.USER]
        assert ("its changes were kept.]" in prompts[-1]) == is_answered
        made, patches = conversation.cwd / "made", conversation.paths.patches
    assert made.exists() == is_answered
    assert len(approver.requests) == 2
    assert any("is kept as a patch" in text for text in notices) != is_answered
    assert patches.exists() != is_answered
