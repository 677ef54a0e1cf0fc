"""The real program on a pseudo-terminal, its screen read by a terminal emulator."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

from tests.pseudoterminal import start_on

CTRL_C, CTRL_D, CTRL_J, ESCAPE, ENTER, TAB = "\x03", "\x04", "\n", "\x1b", "\r", "\t"
ALT_ENTER = ESCAPE + ENTER
TIMEOUT = 90.0
"""Seconds; long, so that a busy machine fails no test."""
QUIET = 0.6
"""Seconds in which no key is pressed around a yes."""
_TAKEN = r"In a moment|Too soon|Enter shows|tell the model:"
_MENU = r"(?m)^. \d no +no\b|^\[?once.* tell"
_BEGIN_UPDATE, _END_UPDATE = b"\x1b[?2026h", b"\x1b[?2026l"


class Emulator(pyte.HistoryScreen):
    """A screen that keeps in its history what leaves it at the top when it gets lower.

    As in pyte, the cursor stays where it is then. With `cuts_below`, the rows below the cursor are
    cut first, and the cursor stays in its row, as in xterm and tmux.
    """

    def __init__(self, columns: int, rows: int, *, cuts_below: bool = False) -> None:
        super().__init__(columns, rows, history=5000)
        self._cuts_below = cuts_below

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        lines = lines or self.lines
        if lines < self.lines:
            dropped = max(0, (self.cursor.y + 1 if self._cuts_below else self.lines) - lines)
            self.history.top.extend(self.buffer[row] for row in range(dropped))
            kept = {row: self.buffer[row + dropped] for row in range(lines)}
            self.buffer.clear()
            self.buffer.update(kept)
            self.cursor.y = min(self.cursor.y - dropped * self._cuts_below, lines - 1)
            self.lines = lines
        super().resize(lines, columns)
        self.set_margins()


class Terminal:
    """A program and what it draws."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        *,
        columns: int = 80,
        rows: int = 24,
        cuts_below: bool = False,
    ) -> None:
        self.screen = Emulator(columns, rows, cuts_below=cuts_below)
        self._stream = pyte.ByteStream(self.screen)
        self.output = b""
        self.home = env.get("HOME", "")
        self._drawn: tuple[int, str] | None = None
        self._is_dumb = env.get("TERM") == "dumb"
        self._master, slave = pty.openpty()
        self._resize_pty(columns, rows)
        self.modes_before = self.modes()
        self.process = start_on(slave, argv, cwd, env)
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGHUP)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self._master)

    def modes(self) -> list[Any]:
        """The terminal's settings, but for the bytes the kernel keeps for itself."""
        return termios.tcgetattr(self._master)[:6]

    def send(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def say(self, text: str) -> None:
        """Type a line and send it; waits until it is drawn, as a person would."""
        # until the program reads keys, the kernel draws what is typed
        self._wait(lambda: self._is_dumb or self._reads_keys(), "a prompt", TIMEOUT)
        self.send(text)
        end = "".join(text[-20:].split())
        self._wait(lambda: self._before_cursor().endswith(end), f"typed: {text}", TIMEOUT)
        self.send(ENTER)

    def choose(self, letter: str) -> None:
        """Mark a line of the question that is shown, and choose it, as somebody who reads does."""
        word = {"y": "once", "s": "session", "a": "always", "n": "no", "f": "tell"}[letter]
        self.wait_asked(_MENU)
        self.send(letter)
        self.wait_for(rf"(?m)^[›>] \d {word} |\[{word}\]")
        question = self._newest_question()
        while True:
            rested = time.monotonic() + QUIET
            while time.monotonic() < rested:
                self._read(0.05)
            self.send(ENTER)
            self._read(1.0)  # what the screen says may be of an earlier Enter
            self._wait(lambda: self._took_enter(question), "Enter taken", TIMEOUT)
            if re.search("Too soon|Enter shows", self.visible()) is None:
                return

    def _reads_keys(self) -> bool:
        """Whether the program gets each key, where the kernel would collect and draw a line."""
        return not self.modes()[3] & termios.ICANON

    def _newest_question(self) -> str:
        """What stands above the newest question: another one may follow an answer at once."""
        return "".join(re.split("(Allow |Keep these changes)", self.text())[:-1])

    def _took_enter(self, question: str) -> bool:
        shown = self.visible()
        is_another = self._newest_question() != question
        return is_another or re.search(_TAKEN, shown) is not None or re.search(_MENU, shown) is None

    def paste(self, text: str) -> None:
        """Paste as a terminal with bracketed paste does."""
        self.send(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        """Change the window's size, at a moment when nothing drawn for the old one is unread."""
        self._pause()
        self.screen.resize(rows, columns)
        self._drawn = None
        self._resize_pty(columns, rows)
        self.process.send_signal(signal.SIGCONT)

    def wait_for(self, pattern: str, *, timeout: float = TIMEOUT) -> str:
        """Read until the screen or what scrolled off it shows `pattern`; returns all of it."""
        return self._wait(lambda: re.search(pattern, self.text()) is not None, pattern, timeout)

    def wait_asked(self, pattern: str = r"Allow \w+|Keep these changes") -> str:
        """Read until a question is shown, and the program takes keys for its answer.

        Keys that came before it was drawn belong to the prompt. The program looks for them a moment
        after it has drawn.
        """
        self.wait_for(pattern)
        return self.settle(0.02)

    def wait_until(self, done: Any) -> None:
        """Read until `done` is true."""
        self._wait(done, "it", TIMEOUT)

    def wait_gone(self, pattern: str, *, timeout: float = TIMEOUT) -> str:
        """Read until the screen no longer shows `pattern`."""
        return self._wait(
            lambda: re.search(pattern, self.visible()) is None, f"gone: {pattern}", timeout
        )

    def wait_count(self, pattern: str, count: int, *, timeout: float = TIMEOUT) -> str:
        """Read until `pattern` was shown `count` times."""
        return self._wait(
            lambda: len(re.findall(pattern, self.text())) >= count, f"{count}×{pattern}", timeout
        )

    def wait_said(self, *texts: str, timeout: float = TIMEOUT) -> str:
        """Read until what the user has sent is `texts` and nothing else."""
        return self._wait(lambda: self.said() == list(texts), f"said: {texts}", timeout)

    def said(self) -> list[str]:
        """The lines that stand above the prompt as the user's own."""
        lines = self.text().split("\n")
        above = lines[: len(lines) - self.screen.lines + self.screen.cursor.y]
        return [line[2:] for line in above if line.startswith("› ")]

    def settle(self, seconds: float = 0.3) -> str:
        """Read until nothing has come for a while and the program is not just short of CPU."""
        end = time.monotonic() + TIMEOUT
        while self._read(seconds) or self._wants_cpu():
            assert time.monotonic() < end, f"never quiet:\n{self.visible()}"
        return self.text()

    def wait_exit(self, timeout: float = TIMEOUT) -> int:
        """Read until the program has ended; its exit code."""
        end = time.monotonic() + timeout
        while self.process.poll() is None:
            self._read(0.05)
            assert time.monotonic() < end, f"still running:\n{self.visible()}"
        self.settle(0.05)
        return self.process.returncode

    def visible(self) -> str:
        """What the screen shows."""
        return "\n".join(self._rows())

    def text(self) -> str:
        """What scrolled off and what the screen shows."""
        if self._drawn is None or self._drawn[0] != len(self.output):
            scrolled = (self._row(line) for line in self.screen.history.top)
            self._drawn = len(self.output), "\n".join([*scrolled, self.visible()])
        return self._drawn[1]

    def _rows(self) -> list[str]:
        """The lines of the screen; its own `display` takes 50 times longer."""
        buffer = self.screen.buffer
        return [self._row(buffer[number]) for number in range(self.screen.lines)]

    def _row(self, line: Mapping[int, Any]) -> str:
        """A line without blanks at its end; only what was drawn on is in `line`."""
        end = min(max(line, default=-1) + 1, self.screen.columns)
        return "".join([line[column].data for column in range(end)]).rstrip()

    def _wait(self, done: Any, wanted: str, timeout: float) -> str:
        end = time.monotonic() + timeout
        while self._is_drawing() or not done():
            has_ended = self.process.poll() is not None
            came = self._read(0.05)
            if time.monotonic() > end or (has_ended and not came and not done()):
                raise AssertionError(f"no {wanted!r} on the screen:\n{self.text()}")
        return self.text()

    def _before_cursor(self) -> str:
        """What ends at the cursor, without blanks: lines may be broken anywhere."""
        row, column = self.screen.cursor.y, self.screen.cursor.x
        lines = self._rows()
        return "".join("".join([*lines[:row], lines[row][:column]]).split())

    def _pause(self) -> None:
        """Stop the program when it has drawn what it began to draw, and read that."""
        end = time.monotonic() + TIMEOUT
        while True:
            while self._wants_cpu() or self._is_drawing():
                self._read(0.01)
                assert time.monotonic() < end, f"never quiet:\n{self.visible()}"
            self.process.send_signal(signal.SIGSTOP)
            while self._states() & {"R", "D", "S"}:
                time.sleep(0.001)
            while self._read(0.0):
                pass
            if not self._is_drawing():
                return
            self.process.send_signal(signal.SIGCONT)

    def _is_drawing(self) -> bool:
        return self.output.rfind(_BEGIN_UPDATE) > self.output.rfind(_END_UPDATE)

    def _wants_cpu(self) -> bool:
        """Whether the program would go on if it got a processor."""
        return bool(self._states() & {"R", "D"})

    def _states(self) -> set[str]:
        """The states of the program's threads, as /proc names them; none when it has ended."""
        states = set[str]()
        for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            with suppress(OSError):
                states.add(stat.read_text("utf-8", "replace").rpartition(") ")[2][:1])
        return states

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.output += data
        self._stream.feed(data)
        return bool(data)

    def _resize_pty(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
