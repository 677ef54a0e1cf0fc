"""The surface without a terminal that can be redrawn: plain lines of input and output."""

import asyncio
import signal
import sys
import termios
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TextIO

from shepherd.cli.approval.plain_question import ask_in_lines
from shepherd.cli.approval.question import QUIET_SECONDS, Answer, Question
from shepherd.cli.render.rows import RowWriter
from shepherd.cli.render.surface import Actions, Surface
from shepherd.cli.terminal import paint, secrets

WIDTH = 100


class PlainSurface(Surface):
    """Plain text: it redraws nothing and sends no escape sequence."""

    def __init__(
        self,
        painter: paint.Painter,
        actions: Actions,
        source: TextIO | None = None,
        target: TextIO | None = None,
    ) -> None:
        self.painter = painter
        self._rows = RowWriter(painter)
        self.actions = actions
        self._source = source or sys.stdin
        self.target = target or sys.stdout
        self.echoes = self.target.isatty()
        self.has_live_area = False
        self._answers: asyncio.Queue[str] | None = None
        """Gets the lines while a question waits; otherwise they are messages."""
        self.at_end = False
        """Whether the input has ended."""
        self._has_left: asyncio.Event = asyncio.Event()

    def show(self, *ink: paint.Ink) -> None:
        """Print."""
        self.write(self._rows.write(ink, WIDTH))

    async def ask(self, question: Question) -> Answer:
        """Print the question, in pages on a terminal, and wait for one of its words."""
        with self._taking_answers() as answers:
            return await ask_in_lines(question, _Answers(self, answers))

    async def ask_text(self, label: str) -> str:
        """Wait for a line."""
        with self._taking_answers() as answers:
            return await self.next_line(answers, label)

    async def ask_secret(self, label: str) -> str:
        """Wait for a line; a terminal does not show it."""
        with _no_echo(self._source):
            answer = await self.ask_text(label)
        self.write("\n")
        return answer

    def hint(self, text: str) -> None:
        """Print it."""
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
            """In a thread, which a blocking read keeps; it ends with the process."""
            with suppress(RuntimeError):  # the loop is closed: there is no listener
                for line in self._source:
                    loop.call_soon_threadsafe(self._take_line, line.rstrip("\n"))
                loop.call_soon_threadsafe(self._note_end)

        threading.Thread(target=read, daemon=True, name="shepherd-stdin").start()
        loop.add_signal_handler(signal.SIGINT, self.actions.stop)
        try:
            await self._has_left.wait()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def leave(self) -> None:
        """End `run`."""
        self._has_left.set()

    def _take_line(self, line: str) -> None:
        """Give a line to the question that waits, or send it as a message."""
        if self._answers is not None:
            self._answers.put_nowait(line)
        else:
            self.actions.submit(line)

    def _note_end(self) -> None:
        """Leave after the last line of the input, once all messages are answered."""
        self.at_end = True
        if self._answers is not None:
            self._answers.put_nowait("")  # wakes a question
        self.actions.submit("/exit")

    async def next_line(self, answers: asyncio.Queue[str], label: str) -> str:
        """Print `label`, wait for a line; "" at the end of the input."""
        self.write(label)
        if self.at_end and answers.empty():
            return ""
        return (await answers.get()).strip()

    @contextmanager
    def _taking_answers(self) -> Generator[asyncio.Queue[str]]:
        """Treats lines as answers in this context; those typed too early become messages."""
        answers = self._answers = asyncio.Queue[str]()
        try:
            yield answers
        finally:
            self._answers = None
            while not answers.empty():
                self.actions.submit(answers.get_nowait())

    def write(self, text: str) -> None:
        """Print text, with question marks for characters that the encoding lacks."""
        encoding = self.target.encoding or "utf-8"
        self.target.write(text.encode(encoding, "replace").decode(encoding))
        self.target.flush()


class _Answers:
    """The lines that answer a question."""

    def __init__(self, surface: PlainSurface, answers: asyncio.Queue[str]) -> None:
        self.target = surface.target
        self._surface = surface
        self._answers = answers

    def show(self, text: str) -> None:
        self._surface.write(text)

    async def read(self, label: str) -> str | None:
        line = await self._surface.next_line(self._answers, label)
        is_end = not line and self._surface.at_end and self._answers.empty()
        return None if is_end else line

    async def forget_typed(self) -> None:
        if not self._surface.echoes:  # a program writes its answers in advance
            return
        await asyncio.sleep(QUIET_SECONDS)
        while not self._answers.empty():
            self._surface.actions.submit(self._answers.get_nowait())


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
