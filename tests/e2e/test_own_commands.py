"""Lines that begin with `!` in the terminal."""

import json
from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.terminal import ENTER

READY = r"approve: ask"


def test_own_commands_show_their_output_to_the_user_and_to_the_model(
    start: Start, tmp_path: Path
) -> None:
    terminal = start("text: I see.\n", rows=40)
    terminal.wait_for(READY)
    terminal.say("!echo for-$((40 + 2)); exit 3")
    terminal.wait_for("for-42")
    terminal.wait_for("ended with exit code 3")
    terminal.say("!!echo mine-$((40 + 3))")
    terminal.wait_for("mine-43")
    terminal.say("!seq 5 && sleep 3600")
    terminal.wait_for("running seq 5")
    terminal.wait_for("    5")
    terminal.send("\x1b")
    terminal.wait_for("interrupted")
    terminal.say("what was that?")
    terminal.wait_for("I see.")
    terminal.say("/save said.json")
    terminal.wait_for("Saved to")
    [path] = tmp_path.rglob("said.json")
    messages = json.loads(path.read_text())["messages"]
    texts = [message["content"] for message in messages]
    assert "for-42\n[exit code 3]" in texts
    assert "1\n2\n3\n4\n5\n[was interrupted by the user]" in texts
    assert texts[-2] == "what was that?"
    assert "mine-43" not in path.read_text()


def test_a_message_that_does_not_fit_comes_back_also_behind_an_own_command(start: Start) -> None:
    terminal = start("context: 3000\ntext: ok\n", rows=40)
    terminal.wait_for(READY)
    terminal.say("!echo for-$((40 + 2))")
    terminal.wait_for("for-42")
    terminal.paste("word " * 3500 + "the end")
    terminal.wait_for("paste 1")
    terminal.send(ENTER)
    terminal.wait_for("does not fit")
    terminal.wait_for(r"(?s)does not fit.*word word")
