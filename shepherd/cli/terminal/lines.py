"""Lines of bytes over stdin and stdout, which programs speak in."""

import asyncio
import os
import sys
import threading
from contextlib import suppress

CHUNK = 65_536


def take_streams() -> tuple[int, int]:
    """Private copies of stdin and stdout.

    Afterwards stdin is empty, and what anything prints goes to stderr. Programs that tools start
    do not inherit the copies.
    """
    stdin, stdout, stderr = 0, 1, 2
    sys.stdout.flush()
    source, target = os.dup(stdin), os.dup(stdout)
    os.dup2(stderr, stdout)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, stdin)
    os.close(empty)
    return source, target


def read_lines(descriptor: int, limit: int = sys.maxsize) -> asyncio.Queue[bytes | None]:
    """A queue of the lines from `descriptor`, without their newlines; None at the end.

    A line of more than `limit` bytes is an end too. Works for terminals, pipes and files. The
    reading thread ends with the process: nothing can wake it from a silent pipe, so it holds no
    Python lock.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(line: bytes | None) -> None:
        with suppress(RuntimeError):  # the loop has ended, so there is no reader
            loop.call_soon_threadsafe(queue.put_nowait, line)

    def read() -> None:
        """Read to the end, in the thread."""
        parts: list[bytes] = []
        """The beginning of the line whose newline has not come; `size` is its length."""
        size = 0
        try:
            while size <= limit and (data := os.read(descriptor, CHUNK)):
                first, *others = data.split(b"\n")  # each of the others begins a line
                parts.append(first)
                size += len(first)
                for other in others:
                    put(b"".join(parts))
                    parts, size = [other], len(other)
            if size > limit:
                sys.stderr.write(f"shepherd: a line has more than {limit} bytes: the end\n")
            elif last_line := b"".join(parts):  # it has no newline
                put(last_line)
        finally:
            put(None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    return queue
