"""The whole program with its own model; what it says is not looked at closely."""

from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_C, CTRL_D, ESCAPE

READY = r"approve: ask"
ANSWERED = r"pup · [1-9][\d.k]*/[\d.k]+ tokens \(\d+%\)"


def test_the_prompt_is_there_before_the_model_and_takes_a_question(start: Start) -> None:
    terminal = start(None, "--temperature", "0", columns=100)
    terminal.wait_for("›")
    terminal.send("hello\r")
    terminal.wait_for("› hello")
    terminal.wait_for(ANSWERED)
    terminal.settle()
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0


def test_a_tool_runs_and_a_stop_during_the_prompt_does_no_harm(start: Start, work: Path) -> None:
    (work / "notes.txt").write_text("buy milk\n")
    long_text = " ".join(f"word{n}" for n in range(600))
    (work / "long.txt").write_text(long_text)
    terminal = start(None, "--temperature", "0", columns=100)
    terminal.wait_for(READY)
    terminal.say("read notes.txt")
    terminal.wait_for("● read_file")
    terminal.wait_for(ANSWERED)
    terminal.settle()
    terminal.say("what is @long.txt")
    terminal.wait_for(r"reading the prompt|\([6-9]\d%\)")
    terminal.send(ESCAPE)
    terminal.wait_for(r"interrupted|\([6-9]\d%\)")
    terminal.settle()
    terminal.send(CTRL_C)
    terminal.say("/clear")
    terminal.wait_for("starts afresh")
    terminal.wait_for(r"pup · 0/[\d.k]+ tokens")
    terminal.say("hello")
    terminal.wait_for(r"pup · [1-9][\d.k]*/[\d.k]+ tokens|Traceback")
    assert "Traceback" not in terminal.settle()
