"""A terminal on a shared conversation, beside another client."""

from pathlib import Path

import httpx

from tests.cli.cliserver import cliserver
from tests.cli.program import Program
from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_D, ESCAPE
from tests.patience import PATIENCE

SCRIPT = """\
call: write_file {"path": "new.txt", "content": "alpha\\n"}
---
text: It is done.
---
text: **Others** ask too.
---
text: Wait for it
delay: 60
"""


def test_a_terminal_shares_the_conversation(start: Start, home: Path, work: Path) -> None:
    with cliserver(Program(home, work), SCRIPT) as url:
        terminal = start(None, "--connect", url, columns=100, rows=40)
        terminal.wait_for("script at http")
        terminal.say("write it")
        terminal.wait_for("Allow write_file")
        assert "+alpha" in terminal.text()
        assert not (work / "new.txt").exists()
        terminal.send("y")
        terminal.wait_for("It is done")
        assert (work / "new.txt").read_text() == "alpha\n"

        answer = httpx.post(f"{url}/request", json={"prompt": "me as well"}, timeout=60)
        assert answer.json()["content"] == "**Others** ask too."
        shown = terminal.wait_for("Others ask too")
        assert "another client: me as well" in shown

        terminal.say("and now")
        terminal.wait_for("Wait for it")
        terminal.send(ESCAPE)
        terminal.wait_for("interrupted")
        while (session := httpx.get(f"{url}/session", timeout=PATIENCE).json())["running"]:
            pass  # it ends as soon as its work lets go
        assert session["messages"][-1]["content"] == "Wait for it"

        terminal.say("/context")
        terminal.wait_for("8 messages")
        terminal.say("/clear")
        terminal.wait_for("the conversation was cleared")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
        assert httpx.get(f"{url}/session", timeout=PATIENCE).json()["messages"] == []


def test_who_joins_sees_what_was_said(start: Start, home: Path, work: Path) -> None:
    with cliserver(Program(home, work), "text: I am here.") as url:
        httpx.post(f"{url}/request", json={"prompt": "who is there?"}, timeout=60)
        terminal = start(None, "--connect", url, columns=100, rows=30)
        shown = terminal.wait_for("I am here")
        assert "who is there?" in shown
