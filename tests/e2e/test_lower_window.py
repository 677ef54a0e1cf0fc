"""A window that gets lower loses no text, whatever the terminal does to its rows."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.e2e.terminal import TIMEOUT

WORDS = 60
SCRIPT = "\n".join(f'text: "word{n}{{}}"\ndelay: 0.02' for n in range(WORDS))
SEPARATORS = [" ", "\\n\\n"]
Tmux = Callable[..., str]


def _assert_complete(shown: str) -> None:
    assert re.findall(r"word\d+", shown) == [f"word{n}" for n in range(WORDS)], shown


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("cuts_below", [True, False], ids=["rows cut below", "rows dropped above"])
def test_a_lower_terminal_loses_no_text(start: Start, separator: str, *, cuts_below: bool) -> None:
    terminal = start(SCRIPT.format(*[separator] * WORDS), cuts_below=cuts_below)
    terminal.wait_for("approve: ask")
    terminal.say("hello")
    for word, rows in ((20, 9), (30, 24), (40, 14)):
        terminal.wait_for(rf"word{word}\b")
        terminal.resize(80, rows)
    terminal.wait_for(rf"word{WORDS - 1}\b")
    terminal.wait_gone("Esc stops")
    terminal.resize(80, 8)
    terminal.send("x")
    terminal.wait_for("› x")
    _assert_complete(terminal.text())


@pytest.fixture
def tmux(tmp_path: Path, work: Path, env: dict[str, str]) -> Iterator[Tmux]:
    """Runs a command of a tmux of our own, in whose window the program will be."""
    program = shutil.which("tmux")
    if program is None:
        pytest.skip("there is no tmux")
    socket = f"/tmp/shepherd-test-{os.getpid()}"  # a path of a test may be too long for a socket

    def run(*arguments: str) -> str:
        argv = [program, "-S", socket, "-f", "/dev/null", *arguments]
        return subprocess.run(
            argv, check=False, cwd=work, env=env, capture_output=True, text=True, timeout=TIMEOUT
        ).stdout

    yield run
    run("kill-server")
    with suppress(FileNotFoundError):
        Path(socket).unlink()


def _shown(tmux: Tmux) -> str:
    """What scrolled off the program's pane and what it shows."""
    return tmux("capture-pane", "-p", "-J", "-S", "-", "-t", ":0.0")


def _wait_for(tmux: Tmux, pattern: str) -> str:
    """Wait until `_shown` has the pattern, and return it."""
    end = time.monotonic() + TIMEOUT
    while re.search(pattern, shown := _shown(tmux)) is None:
        assert time.monotonic() < end, shown
        time.sleep(0.02)
    return shown


def _say_hello(tmux: Tmux, script: Path, answer: str, rows: int) -> None:
    """Start the program on a script, in a window of so many rows, and send a message."""
    script.write_text(answer)
    program = Path(sys.executable).with_name("shepherd")
    size = ("-x", "80", "-y", str(rows))
    tmux("new-session", "-d", *size, f"{program} --model script:{script}; sleep 1000")
    _wait_for(tmux, "approve: ask")
    tmux("send-keys", "-t", ":0.0", "hello", "Enter")


@pytest.mark.parametrize("rows", [5, 3])
def test_a_window_of_few_rows_keeps_no_copy_of_what_is_drawn_anew(
    tmux: Tmux, tmp_path: Path, rows: int
) -> None:
    answer = "\n".join(f'text: "word{n}\\n\\n"\ndelay: 0.1' for n in range(8))
    _say_hello(tmux, tmp_path / "script.txt", answer, rows)
    shown = _wait_for(tmux, "(?s)before the first word.*approve: ask")
    assert re.findall(r"word\d", shown) == [f"word{n}" for n in range(8)]
    assert shown.count("approve: ask") == 1


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_window_of_tmux_that_gets_lower_loses_no_text(
    tmux: Tmux, tmp_path: Path, separator: str
) -> None:
    _say_hello(tmux, tmp_path / "script.txt", SCRIPT.format(*[separator] * WORDS), 24)
    _wait_for(tmux, r"word15\b")
    tmux("split-window", "-v", "-t", ":0.0", "sleep 1000")
    _wait_for(tmux, r"word25\b")
    tmux("kill-pane", "-t", ":0.1")
    for rows in (20, 16, 12, 9):  # as by dragging: tmux tells the program only of the last one
        tmux("resize-window", "-y", str(rows))
        _wait_for(tmux, rf"word{55 - rows}\b")
    _wait_for(tmux, rf"(?s)word{WORDS - 1}\b.*tokens.*approve: ask")
    tmux("resize-window", "-y", "7")
    tmux("send-keys", "-t", ":0.0", "x")
    _wait_for(tmux, "› x")
    _assert_complete(_shown(tmux))
