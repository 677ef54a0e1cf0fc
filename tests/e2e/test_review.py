"""The mode `review` on a terminal: the parts of a change, and what waits at the end."""

import json
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_D, ENTER, ESCAPE, QUIET, Terminal
from tests.tools.sandbox.boxes import LAYERED, need

DOWN, RIGHT, LEFT = "\x1b[B", "\x1b[C", "\x1b[D"
LINE = "sed -i -e 's/^3$/three/' -e 's/^30$/thirty/' notes; rm old"
SCRIPT = (
    'call: write_file {"path": "src/new", "content": "alpha\\n"}\n---\n'
    f"call: execute_command {json.dumps({'command': LINE})}\n---\n"
    "text: All done.\n---\ntext: Read it.\n"
)


@pytest.fixture
def files(work: Path) -> Path:
    """The working directory with some files."""
    need(LAYERED[0])
    (work / "notes").write_text("".join(f"{n}\n" for n in range(40)))
    (work / "old").write_text("x\n")
    return work


def open_parts(terminal: Terminal) -> None:
    terminal.wait_asked("Keep these changes")
    terminal.send("c")
    terminal.wait_for(r"(?m)^› \d some ")
    time.sleep(QUIET)
    terminal.send(ENTER)
    terminal.wait_for("Keep which")


def press(terminal: Terminal, key: str, pattern: str) -> None:
    terminal.send(key)
    terminal.wait_for(pattern)


def test_some_hunks_and_files_are_kept(start: Start, files: Path) -> None:
    terminal = start(SCRIPT, "--approve", "review", columns=90, rows=40)
    terminal.wait_for("approve: review")
    terminal.say("go")
    terminal.wait_for(r"done\.\n\s*\nKeep these changes")
    open_parts(terminal)
    press(terminal, "a", r"\(0 of 4 parts\)")
    press(terminal, ENTER, "Nothing is chosen")  # and nothing happens
    press(terminal, ESCAPE, r"(?m)^› \d once")
    open_parts(terminal)
    press(terminal, RIGHT, r"hunk 2 of 2\n +@@ -28,7")
    press(terminal, DOWN, r"›     \[x\] hunk 1")
    press(terminal, " ", r"(?s)\[-\] changed notes.*\[ \] hunk 1")
    press(terminal, LEFT, r"› \[-\] changed notes \(.*2 hunks\n  \[x\] deleted old")
    press(terminal, DOWN, r"› \[x\] deleted")
    press(terminal, " ", r"› \[ \] deleted")
    terminal.send(ENTER)
    terminal.wait_for("kept 2 of 4 parts")
    terminal.wait_for("the user dropped: changed notes")
    text = (files / "notes").read_text()
    assert ("three" in text, "thirty" in text) == (False, True)
    assert (files / "old").exists()
    assert (files / "src/new").read_text() == "alpha\n"


def test_parts_in_plain_lines(start: Start, files: Path) -> None:
    terminal = start(SCRIPT, "--approve", "review", columns=120, rows=60, env={"TERM": "dumb"})
    terminal.wait_for("(?m)^>")
    terminal.say("go")
    terminal.wait_for(r"always/some/no/tell/diff\]")
    terminal.settle(QUIET)
    for line, pattern in (
        ("some", "4 made src/new"),
        ("5", "1 to 4"),
        ("diff", r"\| \+thirty"),
        ("", r"(?s)(tell/diff\].*){2}"),
    ):
        terminal.send(f"{line}\r")
        terminal.wait_for(pattern)
        terminal.settle(QUIET)
    terminal.send("some\r")
    terminal.wait_for("(?s)(keep which.*){4}")
    terminal.send("2, 4\r")
    terminal.wait_for("(?s)kept 2 of 4 parts.*were kept")
    text = (files / "notes").read_text()
    assert ("three" in text, "thirty" in text) == (False, True)
    assert (files / "old").exists()


def test_the_model_goes_on_with_a_word(start: Start, files: Path) -> None:
    terminal = start(SCRIPT, "--approve", "review", columns=90, rows=40)
    terminal.wait_for("approve: review")
    terminal.say("go")
    terminal.choose("f")
    terminal.wait_for("tell the model:")
    terminal.settle()
    terminal.say("also read it")
    terminal.wait_for("Read it")
    terminal.choose("y")
    terminal.wait_for("were kept")
    assert not (files / "old").exists()


def stopped_at_the_question(start: Start) -> Terminal:
    terminal = start(SCRIPT, "--approve", "review", columns=250, rows=40)
    terminal.wait_for("approve: review")
    terminal.say("go")
    terminal.wait_asked("Keep these changes")
    terminal.send(ESCAPE)
    terminal.wait_for("interrupted")
    terminal.settle()
    return terminal


def apply_as_told(shown: str, files: Path) -> None:
    """Do what a notice about a patch says."""
    assert (files / "old").exists()
    command = re.search(r"(?s)git -C .*?\.patch", shown)  # it may be wrapped
    assert command, shown
    subprocess.run(shlex.split(command[0]), check=True)
    assert not (files / "old").exists()
    assert (files / "src/new").read_text() == "alpha\n"
    assert "thirty" in (files / "notes").read_text()


@pytest.mark.parametrize("end", [CTRL_D, signal.SIGTERM, signal.SIGHUP])
def test_what_waits_at_the_end_is_kept_as_a_patch(
    start: Start, files: Path, home: Path, end: str | signal.Signals
) -> None:
    subprocess.run(["git", "init", "-q", files.parent], check=True)
    terminal = stopped_at_the_question(start)
    if isinstance(end, str):
        terminal.send(end)
    else:
        terminal.process.send_signal(end)
    terminal.wait_exit()
    assert "deleted 1) is kept as a patch" in " ".join(terminal.text().split())
    [patch] = (home / ".local/state/shepherd/patches").iterdir()
    assert patch.stat().st_mode & 0o777 == 0o600
    assert not [*(home / ".local/state/shepherd/layers").iterdir()]
    apply_as_told(terminal.text(), files)


def test_what_waits_is_told_about_after_a_kill(start: Start, files: Path, home: Path) -> None:
    terminal = stopped_at_the_question(start)
    terminal.process.kill()
    terminal.wait_exit()
    again = start(SCRIPT, columns=250, rows=40)
    again.wait_for("was killed")
    again.wait_for(r"\.patch")
    apply_as_told(again.settle(), files)
    again.send(CTRL_D)
    again.wait_exit()
    once = start(SCRIPT, columns=250, rows=40)
    once.wait_for("approve: ask")
    assert "killed" not in once.settle()


def test_a_printed_patch_is_not_kept(start: Start, files: Path, home: Path) -> None:
    terminal = start(SCRIPT, "-e", "go", "--approve", "review", columns=250, rows=60)
    terminal.wait_for("thirty")
    assert terminal.wait_exit() == 0
    assert not (home / ".local/state/shepherd/patches").exists()
