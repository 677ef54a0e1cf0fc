"""The surface without a terminal that can be redrawn: plain lines of input and output."""

import asyncio
import signal
import sys
import termios
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TextIO

from shepherd.cli.approval.plain_question import ask_in_lines, parts_in_lines
from shepherd.cli.approval.question import QUIET_SECONDS, Answer, Question
from shepherd.cli.render import rows, surface
from shepherd.cli.terminal import paint, secrets

WIDTH = 100


class PlainSurface(surface.Surface):
    """Plain text: it redraws nothing and sends no escape sequence.

    It is also what `ask_in_lines` reads from and writes to.
    """

    def __init__(
        self,
        painter: paint.Painter,
        actions: surface.Actions,
        source: TextIO | None = None,
        target: TextIO | None = None,
    ) -> None:
        self.painter = painter
        self._rows = rows.RowWriter(painter)
        self._actions = actions
        self._source = source or sys.stdin
        self.target = target or sys.stdout
        self.echoes = self.target.isatty()
        self.has_live_area = False
        self._one_at_a_time = asyncio.Lock()
        """Held by a question."""
        self._is_asking = False
        """Whether a question waits: then lines are answers, otherwise messages."""
        self._answers = asyncio.Queue[str | None]()
        """The lines that a question has not read; None stands for the end of the input."""
        self._at_end = False
        """Whether the input has ended."""
        self._has_left: asyncio.Event = asyncio.Event()

    def show(self, *ink: paint.Ink) -> None:
        """Print."""
        self.write(self._rows.write(ink, WIDTH))

    async def ask(self, question: Question) -> Answer:
        """Print the question, in pages on a terminal, and wait for one of its words."""
        async with self._taking_answers():
            return await ask_in_lines(question, self)

    async def ask_parts(self, question: Question) -> tuple[int, ...] | None:
        """Print the parts, and wait for the numbers of those to keep."""
        async with self._taking_answers():
            return await parts_in_lines(question.parts, self)

    async def ask_text(self, label: str) -> str:
        """Wait for a line; it is empty at the end of the input."""
        async with self._taking_answers():
            return await self.read(label) or ""

    async def ask_secret(self, label: str) -> str:
        """Wait for a line; a terminal does not show it."""
        async with self._taking_answers():
            with _no_echo(self._source):
                answer = await self.read(label) or ""
        self.write("\n")  # the one that was typed was not shown either
        return answer

    def hint(self, text: str) -> None:
        """Print it; there is none to remove."""
        if text:
            self.write(f"({text})\n")

    def idle(self) -> None:
        """Ask for the next line."""
        self.write("> ")

    def restore(self, text: str) -> None:
        """Show the unsent text."""
        lines = "\n".join(secrets.redact(line) for line in text.split("\n"))
        self.write(f"(not sent: {lines})\n")

    async def run(self) -> None:
        """Read lines until their end or until `leave`."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            """Pass the lines on; in a thread, as reading blocks, which ends with the process."""
            with suppress(RuntimeError):  # the loop is closed: there is no listener
                for line in self._source:
                    loop.call_soon_threadsafe(self._take_line, line.rstrip("\n"))
                loop.call_soon_threadsafe(self._note_end)

        threading.Thread(target=read, daemon=True, name="shepherd-stdin").start()
        loop.add_signal_handler(signal.SIGINT, self._actions.stop)
        try:
            await self._has_left.wait()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def leave(self) -> None:
        """End `run`."""
        self._has_left.set()

    def _take_line(self, line: str) -> None:
        """Give a line to the question that waits, or send it as a message."""
        if self._is_asking:
            self._answers.put_nowait(line)
        else:
            self._actions.submit(line)

    def _note_end(self) -> None:
        """Leave after the last line of the input, once all messages are answered."""
        self._at_end = True
        if self._is_asking:
            self._answers.put_nowait(None)
        self._actions.submit("/exit")

    async def read(self, label: str) -> str | None:
        """Print `label` and wait for an answer; None at the end of the input."""
        self.write(label)
        if self._at_end and self._answers.empty():
            return None
        line = await self._answers.get()
        return None if line is None else line.strip()

    async def forget_typed(self) -> None:
        """Send the lines as messages that were typed before now, except those of a program."""
        if self.echoes:  # without a terminal, a program writes its answers in advance
            await asyncio.sleep(QUIET_SECONDS)
            self._send_unread()

    @asynccontextmanager
    async def _taking_answers(self) -> AsyncGenerator[None]:
        """Treats lines as answers in this context; those that no question reads are messages."""
        async with self._one_at_a_time:
            self._is_asking = True
            try:
                yield
            finally:
                self._is_asking = False
                self._send_unread()

    def _send_unread(self) -> None:
        """Send the lines that no question has read as messages; "" for the end sends none."""
        while not self._answers.empty():
            self._actions.submit(self._answers.get_nowait() or "")

    def write(self, text: str) -> None:
        """Print text, with question marks for characters that the encoding lacks."""
        encoding = self.target.encoding or "utf-8"
        self.target.write(text.encode(encoding, "replace").decode(encoding))
        self.target.flush()


@contextmanager
def _no_echo(source: TextIO) -> Generator[None]:
    """Hides typed text on the terminal in this context."""
    if not source.isatty():
        yield
        return
    local_flags = 3  # their place in the list of termios
    before = termios.tcgetattr(source)
    silent = [*before]
    silent[local_flags] &= ~termios.ECHO
    termios.tcsetattr(source, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)
