"""Lines of a file descriptor, read beside the event loop."""

import asyncio
import os
import threading
from contextlib import suppress

CHUNK = 65_536


def read_lines(descriptor: int) -> asyncio.Queue[bytes | None]:
    """A queue of the lines read from `descriptor`, without their newlines; None at its end.

    Works for terminals, pipes and files alike. The thread that reads ends with the process:
    nothing can wake it from a pipe that stays silent, so it holds no lock of Python's.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(line: bytes | None) -> None:
        with suppress(RuntimeError):  # the loop has ended, nobody reads the queue
            loop.call_soon_threadsafe(queue.put_nowait, line)

    def read() -> None:
        rest = b""
        try:
            while data := os.read(descriptor, CHUNK):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    put(line)
            if rest:
                put(rest)
        finally:
            put(None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    return queue
