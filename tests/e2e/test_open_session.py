"""A session that another process has open: one can join it, or go on with a copy."""

import re
from pathlib import Path

import httpx

from tests.cli.cliserver import cliserver
from tests.cli.program import Program
from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_D
from tests.patience import PATIENCE

ELSEWHERE = r"Session (\S+) is open in another Shepherd\."


def test_an_open_session_offers_a_copy_of_it(start: Start, home: Path, work: Path) -> None:
    first = start("text: The first answer.\n---\ntext: Still here.\n")
    first.wait_for("approve: ask")
    first.say("hello")
    first.wait_for("The first answer")

    program = Program(home, work)
    refused = program.run("--continue", "-e", "and now?")
    assert refused.returncode == 1
    found = re.search(ELSEWHERE, refused.stderr)
    assert found is not None
    assert f"`shepherd --resume {found[1]} --branch` goes on with a copy of it." in refused.stderr
    assert "--connect" not in refused.stderr

    second = start("text: The copy answers.\n", "--resume", found[1], "--branch")
    shown = second.wait_for("This is a copy of session")
    assert "The first answer" in shown
    second.say("and now?")
    second.wait_for("The copy answers")
    first.say("are you there?")
    first.wait_for("Still here")
    for terminal in (first, second):
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0

    original, copy = (path.read_text() for path in program.sessions)
    assert "Still here" in original
    assert "The copy answers" not in original
    assert "The copy answers" in copy
    assert "The first answer" in copy
    assert "Still here" not in copy


def test_a_shared_session_offers_to_join_it(home: Path, work: Path) -> None:
    program = Program(home, work)
    with cliserver(program, "text: I am here.\n") as url:
        httpx.post(f"{url}/request", json={"prompt": "hello"}, timeout=PATIENCE)
        refused = program.run("--continue", "-e", "and now?")
        assert refused.returncode == 1
        assert f"`shepherd --connect {url}` joins it there;" in refused.stderr
        assert "--branch` goes on with a copy of it." in refused.stderr
    holder = program.start_scripted("text: Mine.\n", "--json", "--continue")
    with holder:  # what was shared is not any more
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write('{"type": "user", "content": "hold"}\n')
        holder.stdin.flush()
        while '"end_turn"' not in holder.stdout.readline():
            pass
        refused = program.run("--continue", "-e", "and now?")
        assert "--branch" in refused.stderr
        assert "--connect" not in refused.stderr
        holder.stdin.close()
        holder.wait(PATIENCE)


def test_a_copy_needs_a_session(home: Path, work: Path) -> None:
    refused = Program(home, work).run("--branch", "-e", "hello")
    assert refused.returncode == 2
    assert "--branch goes with --continue or --resume." in refused.stderr
