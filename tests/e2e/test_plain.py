"""Terminals that can't redraw, have no colours or no Unicode."""

import pytest

from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_C, CTRL_D, ENTER

SCRIPT = (
    'text: "# Title\\n\\nSome **bold** ünïcödé.\\n"\n'
    'call: write_file {"path": "new.txt", "content": "alpha"}\n---\ntext: End.\n'
)


def test_a_dumb_terminal_gets_plain_lines(start: Start) -> None:
    terminal = start(SCRIPT, env={"TERM": "dumb"})
    terminal.wait_for(r"(?m)^>$")
    terminal.send("hello\r")
    terminal.wait_for(r"\[once/session/always/no/tell\]")
    terminal.send("n\r")
    terminal.wait_for("Nothing was approved")
    terminal.send("no\r")
    shown = terminal.wait_for("End")
    assert "Some **bold**" in shown
    assert "denied by the user" in shown
    assert b"\x1b" not in terminal.output
    terminal.settle()
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0


def test_ctrl_c_stops_a_turn_on_a_dumb_terminal(start: Start) -> None:
    script = 'text: "Begun.\\n\\n"\ndelay: 600\n---\ntext: Next.\n'
    terminal = start(script, env={"TERM": "dumb"})
    terminal.wait_for(r"(?m)^>$")
    terminal.send("hello\r")
    terminal.wait_for("Begun")
    terminal.send(CTRL_C)
    terminal.wait_for("interrupted")
    terminal.send("again\r")
    terminal.wait_for("Next")


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_without_unicode_every_sign_is_ascii(start: Start, locale: str) -> None:
    settings = {"LANG": locale, "LC_ALL": locale, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    terminal = start(SCRIPT, env=settings)
    terminal.wait_for("approve: ask")
    terminal.send("hello")
    terminal.wait_for("> hello")
    terminal.send(ENTER)
    terminal.wait_for("Allow write_file")
    terminal.choose("n")
    terminal.wait_for("End")
    assert terminal.output.isascii()


def test_no_color_is_respected(start: Start) -> None:
    terminal = start(SCRIPT, env={"NO_COLOR": "1"})
    terminal.wait_for("approve: ask")
    terminal.say("hello")
    terminal.wait_for("Allow write_file")
    terminal.choose("n")
    terminal.wait_for("End")
    for line in terminal.screen.buffer.values():
        assert {character.fg for character in line.values()} <= {"default"}
