"""Claude Code runs a tool of its own and finishes, against a scripted model.

It must be in `PATH`: `npm install --global @anthropic-ai/claude-code`.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shepherd.backends.base import Prefilled
from shepherd.backends.scripted import ScriptedBackend, parse_script
from shepherd.events import EventCallback
from shepherd.messages import Role
from shepherd.session import Session
from tests.patience import PATIENCE
from tests.server.harness import RunningServer

PROGRAM = shutil.which("claude")
SETTINGS = "context: 200000\n"
CALL = 'think: Let me look.\ntext: I look.\ncall: Bash {"command": "cat notes.txt"}'
TITLE = r'text: "{\"title\": \"Notes\"}"'
DONE = "text: The notes are about sheep."

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Claude Code is not installed")


class Model(ScriptedBackend):
    """Calls a tool first, and answers once it has the result; `sessions` are those with tools."""

    def __init__(self) -> None:
        super().__init__(parse_script(SETTINGS))
        self.sessions: list[Session] = []

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        if session.tools:
            self.sessions.append(session)
        last = session.messages[-1].role if session.messages else None
        first = CALL if session.tools else TITLE
        self.script = parse_script(SETTINGS + (DONE if last is Role.TOOL else first))
        return await super().prefill_session(session, callback)


def run(server: RunningServer[Any], directory: Path, question: str) -> dict[str, Any]:
    """What Claude Code says at its end; the directory is also its home."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory / "home"),
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    command = [str(PROGRAM), "-p", question, "--allowedTools", "Bash", "--output-format", "json"]
    done = subprocess.run(
        command,
        check=False,
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_three_sessions_run_a_tool_and_share_their_beginning(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Sheep like grass.\n")
    (tmp_path / "home").mkdir()
    model = Model()
    with RunningServer(model) as server:
        for question in ("What do the notes say?", "Read the notes.", "Sheep?"):
            end = run(server, tmp_path, question)
            assert (end["result"], end["is_error"]) == ("The notes are about sheep.", False)
    firsts, seconds = model.sessions[::2], model.sessions[1::2]
    assert len(firsts) == len(seconds) == 3
    assert len({session.system_message for session in model.sessions}) == 1
    assert "billing" not in model.sessions[0].system_message
    assert all(session.tools == model.sessions[0].tools for session in model.sessions)
    for first, second in zip(firsts, seconds, strict=True):
        assert second.messages[: len(first.messages)] == first.messages
        assert second.messages[-2].reasoning == "Let me look."
        assert second.messages[-1].content == "Sheep like grass."
