"""Commands that run while the model works."""

import re
from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.terminal import ESCAPE

WORDS = "\n".join(f'text: "word{n} "\ndelay: 0.03' for n in range(40))
READY = "approve: ask"


def test_commands_that_look_run_while_the_model_writes_and_others_wait(start: Start) -> None:
    terminal = start(f"{WORDS}\ndelay: 600\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("word3")
    for line, output in (
        ("/jobs", "no background commands"),
        ("!echo my $((40 + 2))", "my 42"),
        ("/usage", "since the start"),
        ("/help", "Ctrl.D"),
        ("/diff", "No file has changed"),
        ("/context", "system message"),
    ):
        terminal.say(line)
        terminal.wait_for(output)
    terminal.say("/clear")
    terminal.wait_for("waiting: /clear")
    shown = terminal.wait_for(r"word39\b")
    assert re.findall(r"word\d+", shown) == [f"word{n}" for n in range(40)]
    assert "Esc stops" in terminal.visible()


def test_esc_stops_a_command_that_runs_beside_the_model(start: Start) -> None:
    terminal = start("text: Done.\ndelay: 0.5\n---\ntext: Again.\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("Done")
    terminal.say("!echo begun; sleep 600")
    terminal.wait_gone("· Esc stops")
    terminal.send(ESCAPE)
    terminal.wait_for("interrupted by the user")
    terminal.say("more")
    terminal.wait_for("Again")


def test_a_command_overtakes_no_other_one(start: Start, work: Path) -> None:
    """The first one may change what the second one looks at."""
    terminal = start("text: Done.\n")
    terminal.wait_for(READY)
    terminal.say("!until [ -e go ]; do sleep 0.05; done; echo fir''st")
    terminal.wait_for("Esc stops")
    for line in ("!echo sec''ond", "/stats"):
        terminal.say(line)
        terminal.wait_for(f"waiting: {line}")
    (work / "go").touch()
    shown = terminal.wait_for("messages answered")
    assert re.findall("first|second|messages answered", shown) == [
        "first",
        "second",
        "messages answered",
    ]
