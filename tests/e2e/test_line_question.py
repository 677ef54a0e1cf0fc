"""Questions in plain lines: `shepherd -e` on a terminal."""

import json
import re
from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_D, Terminal

WORDS = r"\[once/session/always/no/tell/diff\]"


def _script(command: str) -> str:
    call = json.dumps({"command": command})
    return f"call: execute_command {call}\n---\ntext: It is done.\n"


def _line(terminal: Terminal, text: str) -> None:
    """Type a line when it is asked for."""
    terminal.settle()
    terminal.send(f"{text}\r")


def test_only_a_full_word_approves(start: Start, work: Path) -> None:
    terminal = start(_script("touch made"), "-e", "go", columns=100, rows=60)
    terminal.send("once\ryes\r")  # typed ahead
    prose = ("y", "a", "stop", "actually", "sure, but", "yes please", "o nce", "1", "")
    for count, text in enumerate(prose):
        terminal.wait_for(rf"(?s)(Nothing was approved.*){{{count}}}{WORDS}")
        _line(terminal, text)
    shown = terminal.wait_for(rf"(?s)(Nothing was approved.*){{{len(prose)}}}{WORDS}")
    assert "Keep these changes?  (ask effect any **)\n  │ touch made\n" in shown
    assert "The answers are the words once, session, always, no, tell, diff" in shown
    assert re.search(r"session  = yes, and .*\n +allow effect write \*\* ", shown)
    assert not (work / "made").exists()
    _line(terminal, "once")
    terminal.wait_for("It is done")
    assert terminal.wait_exit() == 0
    assert (work / "made").exists()


def test_a_long_text_is_paged_to_its_end(start: Start, work: Path) -> None:
    lines = [f"true {n}\u200b {'x' * 90}" for n in range(30)]
    command = "\n".join([*lines, "touch made"])
    terminal = start(_script(command), "-e", "go", columns=40, rows=20)
    terminal.wait_for(r"\[Enter/no\]")
    _line(terminal, "once")
    terminal.wait_for("more follows")
    pages = 1
    while "[once/" not in terminal.text():
        _line(terminal, "")
        pages += 1
        terminal.wait_for(rf"(?s)(Enter/no.*){{{pages + 1}}}|\[once/")
    shown = "".join(re.sub(r"(?m)^  [│┊] |-- .*$", "", terminal.text()).split())
    for line in lines:
        assert "".join(line.replace("\u200b", "<U+200B>").split()) in shown
    assert "touchmade" in shown
    _line(terminal, "once")
    terminal.wait_for("It is done")
    assert (work / "made").exists()


def test_the_end_of_the_input_is_no(start: Start, work: Path) -> None:
    terminal = start(_script("touch made"), "-e", "go", columns=100, rows=40)
    terminal.wait_for(r"\[once/")
    terminal.settle()
    terminal.send(CTRL_D)
    terminal.wait_for("denied by the user")
    terminal.wait_for("It is done")
    assert not (work / "made").exists()
