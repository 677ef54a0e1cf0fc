"""Codex runs a tool of its own and finishes, against a scripted model.

It must be in `PATH`: `npm install --global @openai/codex`.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shepherd.backends.base import Prefilled
from shepherd.backends.scripted import ScriptedBackend, parse_script
from shepherd.events import EventCallback
from shepherd.session import Session
from tests.patience import PATIENCE
from tests.server.harness import RunningServer

PROGRAM = shutil.which("codex")
SCRIPT = """
context: 200000
think: Let me look.
text: I look.
call: exec_command {"cmd": "cat notes.txt"}
---
think: I see.
text: The notes are about sheep.
"""
SETTINGS = """
model = "any"
model_provider = "shepherd"

[model_providers.shepherd]
name = "Shepherd"
base_url = "{url}/v1"
wire_api = "responses"
"""

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Codex is not installed")


class Model(ScriptedBackend):
    """`sessions` are those that were answered."""

    def __init__(self) -> None:
        super().__init__(parse_script(SCRIPT))
        self.sessions: list[Session] = []

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        self.sessions.append(session)
        return await super().prefill_session(session, callback)


def run(server: RunningServer[Any], directory: Path, question: str) -> str:
    """What Codex says at its end."""
    home = directory / "home"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(SETTINGS.format(url=server.url))
    command = [str(PROGRAM), "exec", "--skip-git-repo-check"]
    done = subprocess.run(
        [*command, "--dangerously-bypass-approvals-and-sandbox", question],
        check=False,
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_three_sessions_run_a_tool_and_share_their_beginning(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Sheep like grass.\n")
    model = Model()
    with RunningServer(model) as server:
        for question in ("What do the notes say?", "Read the notes.", "Sheep?"):
            assert run(server, tmp_path, question) == "The notes are about sheep."
    firsts, seconds = model.sessions[::2], model.sessions[1::2]
    assert len(firsts) == len(seconds) == 3
    for first, second in zip(firsts, seconds, strict=True):
        answer, result = second.messages[len(first.messages) :]
        assert second.messages[: len(first.messages)] == first.messages
        assert (answer.content, answer.reasoning) == ("I look.", "Let me look.")
        assert "Sheep like grass." in result.content
    for session in model.sessions:
        assert session.system_message == firsts[0].system_message
        assert session.tools == firsts[0].tools
        assert session.messages[0] == firsts[0].messages[0]
