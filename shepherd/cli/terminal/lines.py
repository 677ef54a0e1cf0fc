"""Lines of bytes from stdin, read in a thread."""

import asyncio
import os
import threading
from contextlib import suppress

CHUNK = 65_536


def read_lines(descriptor: int) -> asyncio.Queue[bytes | None]:
    """A queue of the lines from `descriptor`, without their newlines; None at the end.

    Works for terminals, pipes and files. The reading thread ends with the process: nothing can wake
    it from a silent pipe, so it holds no Python lock.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(line: bytes | None) -> None:
        with suppress(RuntimeError):  # the loop has ended, so there is no reader
            loop.call_soon_threadsafe(queue.put_nowait, line)

    def read() -> None:
        parts: list[bytes] = []
        try:
            while data := os.read(descriptor, CHUNK):
                first, *others = data.split(b"\n")
                parts.append(first)
                for other in others:
                    put(b"".join(parts))
                    parts = [other]
            if rest := b"".join(parts):
                put(rest)
        finally:
            put(None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    return queue
