"""What is typed before the program reads it does the same as if it were typed later."""

import signal

from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_D, Terminal

READY = r"approve: ask"
SCRIPT = "text: First answer.\n---\ntext: Second answer.\n"
LINES = ("/approve", "/thinking on", "question one", "/stats", "/approve edits", "question two")


def _assert_all_done(terminal: Terminal) -> None:
    """Each line was sent by itself, in order."""
    terminal.wait_for("Second answer")
    assert "Error" not in terminal.wait_said(*LINES)


def test_lines_that_arrive_at_once_are_sent_one_by_one(start: Start) -> None:
    terminal = start(SCRIPT, columns=100, rows=50)
    terminal.wait_for(READY)
    terminal.send("".join(f"{line}\r" for line in LINES))
    _assert_all_done(terminal)


def test_lines_typed_while_the_program_can_not_read_are_sent_one_by_one(start: Start) -> None:
    terminal = start(SCRIPT, columns=100, rows=50)
    terminal.wait_for(READY)
    terminal.process.send_signal(signal.SIGSTOP)
    for line in LINES:
        terminal.send(line)
        terminal.send("\r")
    terminal.process.send_signal(signal.SIGCONT)
    _assert_all_done(terminal)


def test_lines_typed_before_the_program_reads_are_sent_one_by_one(start: Start) -> None:
    terminal = start(SCRIPT, columns=100, rows=50)
    terminal.send("".join(f"{line}\r" for line in LINES))
    _assert_all_done(terminal)


def test_the_beginning_of_a_line_typed_before_the_prompt_waits_in_it(start: Start) -> None:
    terminal = start(SCRIPT)
    terminal.send("not yet s")
    terminal.wait_for("› not yet s")
    terminal.send("ent\r")
    terminal.wait_for("(?m)^› not yet sent$")
    terminal.wait_for("First answer")


def test_ctrl_d_typed_before_the_prompt_leaves(start: Start) -> None:
    terminal = start(SCRIPT)
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0
    assert terminal.modes() == terminal.modes_before
