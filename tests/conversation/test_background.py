"""Background commands of a conversation: the notes about their end, and their end with it."""

import os
from pathlib import Path

from shepherd.config.load import load_config
from shepherd.conversation.build import open_conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.events import ignore_events
from shepherd.messages import Role
from shepherd.turn import run_turn
from tests.tools.workshop import until

SCRIPT = """
call: execute_command {"command": "echo x; cat go; exit 4", "background": true}
---
text: started
---
text: I see.
"""


async def test_user_and_model_read_that_a_command_has_ended(tmp_path: Path) -> None:
    script, work = tmp_path / "script", tmp_path / "work"
    script.write_text(SCRIPT)
    work.mkdir()
    os.mkfifo(work / "go")
    env = {"HOME": str(tmp_path)}
    overrides = {
        "model.name": f"script:{script}",
        "permissions.approve": "all",
        "terminal.save_sessions": False,
    }
    config = load_config(work, env, overrides)
    async with open_conversation(config, env, work, SessionStart()) as conversation:
        notices: list[str] = []
        conversation.notices.listen(notices.append)
        backend, tools = await conversation.backend(), conversation.tool_runner()

        async def ask(prompt: str) -> None:
            session, limits = conversation.session, conversation.limits
            await run_turn(session, prompt, backend, tools, ignore_events, limits)

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
