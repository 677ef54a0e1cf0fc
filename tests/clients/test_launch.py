"""`shepherd launch` starts coding agents that run a tool and finish, without settings of theirs."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.session import Session
from tests.cli.program import Program
from tests.clients.agents import (
    ANSWER,
    CLAUDE_CODE,
    CODEX,
    GEMINI_CLI,
    NOTES,
    OPENCODE,
    PI,
    QWEN_CODE,
    Agent,
)
from tests.clients.models import say
from tests.clients.serving import serve
from tests.clients.test_aider import EDIT
from tests.patience import PATIENCE

AGENTS = (CLAUDE_CODE, CODEX, GEMINI_CLI, OPENCODE, PI, QWEN_CODE)
SETTINGS = ("*.toml", "*.json", "*.jsonc", "*.yml", "*.yaml")

on_an_agent = pytest.mark.parametrize(
    "agent",
    [
        pytest.param(
            agent,
            id=agent.program,
            marks=pytest.mark.skipif(not agent.installed, reason="it is not installed"),
        )
        for agent in AGENTS
    ],
)


def launch(place: Path, name: str, arguments: list[str], answer: Callable[[Session], str]) -> str:
    """What the agent prints on a running server."""
    home, work = place / "home", place / "work"
    for folder in (home, work):
        folder.mkdir()
    (work / "notes.txt").write_text(f"{NOTES}\n")
    with serve(answer, place / "server") as server:
        port = server.url.rpartition(":")[2]
        program = Program(home, work, {"TERM": "dumb"})
        with program.start("--port", port, "launch", name, "--", *arguments) as process:
            out, err = process.communicate(timeout=5 * PATIENCE)
    assert process.returncode == 0, out + err
    assert f"at {server.url}, the running server" in err
    for pattern in SETTINGS:
        for path in home.rglob(pattern):
            assert server.url not in path.read_text("utf-8", "replace"), path
    return out


@on_an_agent
def test_a_tool_runs_and_the_answer_is_printed(agent: Agent, tmp_path: Path) -> None:
    question = [option.format(question="Read the notes.") for option in agent.options]
    out = launch(tmp_path, agent.program, question, agent.answer)
    assert ANSWER in out
    assert (tmp_path / "work" / "copy.txt").read_text() == f"{NOTES}\n"


@pytest.mark.skipif(shutil.which("aider") is None, reason="aider is not installed")
def test_aider_changes_a_file(tmp_path: Path) -> None:
    arguments = ["--yes", "--no-git", "--edit-format", "diff", "--message", "Hay!", "notes.txt"]
    launch(tmp_path, "aider", arguments, lambda _: say(EDIT))
    assert (tmp_path / "work" / "notes.txt").read_text() == "Sheep like hay.\n"


@on_an_agent
def test_a_server_of_its_own_answers(agent: Agent, tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    program = Program(home, work, {"TERM": "dumb"})
    scripted = program.scripted(f"context: 200000\n{say(ANSWER)}")
    question = [option.format(question="Read the notes.") for option in agent.options]
    with program.start(*scripted, "launch", agent.program, "--", *question) as process:
        out, err = process.communicate(timeout=5 * PATIENCE)
    assert ANSWER in out, out + err
    log = (home / ".local/state/shepherd/launch.log").read_text()
    assert " 404 " not in log, log
