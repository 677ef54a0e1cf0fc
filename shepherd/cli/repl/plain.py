"""Where there is no terminal to draw on: lines in, lines out."""

import asyncio
import signal
import sys
import termios
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.console import RenderableType

from shepherd.cli.repl.hidden import without_keys
from shepherd.cli.repl.paint import Painter, Piece
from shepherd.cli.repl.surface import Actions

WIDTH = 100


class PlainSurface:
    """A `Surface` of plain text: nothing is redrawn and no escape sequence is sent."""

    def __init__(
        self,
        painter: Painter,
        actions: Actions,
        source: TextIO | None = None,
        target: TextIO | None = None,
    ) -> None:
        self.painter = painter
        self._actions = actions
        self._source = source or sys.stdin
        self._target = target or sys.stdout
        self.echoes = self._target.isatty()
        self._answers: asyncio.Queue[str] | None = None
        self._at_end = False
        self._ended: asyncio.Event = asyncio.Event()

    def show(self, *pieces: Piece) -> None:
        """Print."""
        self._print(self.painter.paint_all(pieces, WIDTH))

    def refresh(self) -> None:
        """Nothing here is live."""

    async def ask(self, question: RenderableType, keys: Sequence[str]) -> str:
        """Print the question and wait for a line that begins with one of `keys`."""
        self.show(Piece(question))
        with self._taking_answers() as answers:
            while True:
                line = await self._next(answers, f"[{'/'.join(keys)}] ")
                if line[:1].lower() in keys and line:
                    return line[0].lower()
                if self._at_end and answers.empty():
                    return keys[-1]

    async def ask_text(self, label: str) -> str:
        """Wait for a line."""
        with self._taking_answers() as answers:
            return await self._next(answers, label)

    async def ask_secret(self, label: str) -> str:
        """Wait for a line; a terminal does not show it."""
        with _no_echo(self._source):
            answer = await self.ask_text(label)
        self._print("\n")
        return answer

    def hint(self, text: str) -> None:
        """Print it."""
        if text:
            self._print(f"({text})\n")

    def idle(self) -> None:
        """Ask for the next line."""
        self._print("> ")

    def restore(self, text: str) -> None:
        """Say what was not sent."""
        lines = "\n".join(without_keys(line) for line in text.split("\n"))
        self._print(f"(not sent: {lines})\n")

    async def run(self) -> None:
        """Take lines until their end or until `leave`."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                for line in self._source:
                    loop.call_soon_threadsafe(self._take, line.rstrip("\n"))
                loop.call_soon_threadsafe(self._end)

        threading.Thread(target=read, daemon=True, name="shepherd-stdin").start()
        loop.add_signal_handler(signal.SIGINT, self._actions.stop)
        try:
            await self._ended.wait()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def leave(self) -> None:
        """End `run`."""
        self._ended.set()

    def _take(self, line: str) -> None:
        if self._answers is not None:
            self._answers.put_nowait(line)
        else:
            self._actions.submit(line)

    def _end(self) -> None:
        self._at_end = True
        if self._answers is not None:
            self._answers.put_nowait("")
        self._actions.submit("/exit")

    async def _next(self, answers: asyncio.Queue[str], label: str) -> str:
        self._print(label)
        if self._at_end and answers.empty():
            return ""
        return (await answers.get()).strip()

    @contextmanager
    def _taking_answers(self) -> Generator[asyncio.Queue[str]]:
        """While this lasts lines are answers; what was typed too early is a message after all."""
        answers = self._answers = asyncio.Queue[str]()
        try:
            yield answers
        finally:
            self._answers = None
            while not answers.empty():
                self._actions.submit(answers.get_nowait())

    def _print(self, text: str) -> None:
        encoding = self._target.encoding or "utf-8"
        self._target.write(text.encode(encoding, "replace").decode(encoding))
        self._target.flush()


@contextmanager
def _no_echo(source: TextIO) -> Generator[None]:
    """While this lasts the terminal does not show what is typed."""
    if not source.isatty():
        yield
        return
    before = termios.tcgetattr(source)
    silent = termios.tcgetattr(source)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(source, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)
