"""Sub-agents of a whole conversation, as programs see them."""

import io
import json
from pathlib import Path

from shepherd.cli.batch.protocol import EventWriter
from shepherd.config.load import load_config
from shepherd.conversation.build import open_conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.turn import run_turn

SCRIPT = """
call: task {"prompt": "look into a"}
call: task {"prompt": "look into b"}
---
text: report
---
text: report
---
text: Both are done.
"""


async def test_json_lines_tell_the_calls_of_sub_agents_apart(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(SCRIPT)
    env, out = {"HOME": str(tmp_path)}, io.BytesIO()
    overrides = {"model.name": f"script:{tmp_path / 'script'}", "terminal.save_sessions": False}
    config = load_config(tmp_path, env, overrides)
    async with open_conversation(config, env, tmp_path, SessionStart()) as conversation:
        backend, tools = await conversation.backend(), conversation.tool_runner()
        session, writer = conversation.session, EventWriter(out)
        assert [tool.name for tool in session.tools if tool.parallel] == ["task"]
        await run_turn(session, "go", backend, tools, writer.receive, conversation.limits)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    calls = {line["id"]: line["input"]["prompt"] for line in lines if line["type"] == "tool_use"}
    assert list(calls.values()) == ["look into a", "look into b"]
    for line in lines:
        if line["type"] == "system":
            assert line["topic"] == "task"
            assert f"({calls[line['id']]}): " in line["content"]
    results = [(line["id"], line["content"]) for line in lines if line["type"] == "tool_result"]
    assert results == [(call, "report") for call in calls]
    assert lines[-2] == {"type": "text", "content": "Both are done."}


async def test_the_settings_can_turn_them_off(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("text: x")
    env = {"HOME": str(tmp_path)}
    for setting in ({"tools.tasks": 0}, {"tools.disabled": ["task"]}):
        overrides = {"model.name": f"script:{tmp_path / 'script'}", **setting}
        config = load_config(tmp_path, env, overrides | {"terminal.save_sessions": False})
        async with open_conversation(config, env, tmp_path, SessionStart()) as conversation:
            await conversation.backend()
            assert "task" not in [tool.name for tool in conversation.session.tools]
