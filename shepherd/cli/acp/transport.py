"""Messages over stdin and stdout, which carry nothing else."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from shepherd.cli.acp.messages import MessageError, message_line, parse_message
from shepherd.messages import JsonObject

FLUSH_SECONDS = 5.0
"""The time at the end in which an editor can read the last messages."""


def take_streams() -> tuple[int, int]:
    """Private copies of stdin and stdout.

    Afterwards stdin is empty, and what anything prints goes to stderr. Programs that tools start
    do not inherit the copies.
    """
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return source, target


class LineWriter:
    """Writes lines in a thread, because an editor that does not read must not stop the turn.

    `closed` is called once nothing can be written anymore.
    """

    def __init__(self, descriptor: int, closed: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._closed = closed
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Write the line after those before it."""
        self._queue.put(line)

    def finish(self) -> None:
        """Wait until all is written, for at most FLUSH_SECONDS."""
        self._queue.put(None)
        self._thread.join(FLUSH_SECONDS)

    def _run(self) -> None:
        try:
            while (line := self._queue.get()) is not None:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self._closed()


class LineTransport:
    """The transport of the connection; a line that is not a message gets an error as its answer."""

    def __init__(self, lines: asyncio.Queue[bytes | None], output: int) -> None:
        loop = asyncio.get_running_loop()
        self._lines = lines

        def end() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(lines.put_nowait, None)

        self._writer = LineWriter(output, end)

    def post(self, message: JsonObject) -> None:
        """Send a message after those before it, without waiting."""
        self._writer.write(message_line(message))

    async def send(self, message: JsonObject) -> None:
        """See `post`."""
        self.post(message)

    async def receive(self) -> JsonObject | None:
        """The next message; None at the end of the input."""
        while (line := await self._lines.get()) is not None:
            if not line.strip():
                continue
            try:
                return parse_message(line)
            except MessageError as error:
                self.post(error.response)
        return None

    async def close(self) -> None:
        """Nothing: the last answers are written after the connection has ended."""

    async def finish(self) -> None:
        """Wait for the editor to read the last messages, for at most FLUSH_SECONDS."""
        await asyncio.to_thread(self._writer.finish)
