"""The messages of an MCP client on stdin and stdout, which nothing else can reach."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.stdio import stdio_server

MAX_MESSAGE_BYTES = 64 << 20
"""Maximum length of one message; a longer one ends the connection."""


class Lines:
    """Lines from a pipe; unlike a thread that reads, waiting for one can be cancelled."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readline()
        except (ValueError, OSError) as error:
            sys.stderr.write(f"shepherd: the connection ends: {error}\n")
            line = b""
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")


@asynccontextmanager
async def protocol_streams() -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of the SDK's server.

    File descriptor 0 then is empty, and 1 leads to stderr, also for programs that tools start.
    """
    if sys.stdin.isatty():
        sys.stderr.write("shepherd: waiting for an MCP client on stdin; Ctrl+C stops.\n")
    incoming, outgoing = _private(0, os.devnull), _private(1, None)
    with open(outgoing, "w", encoding="utf-8") as wire:  # noqa: ASYNC230, PTH123 - a descriptor
        lines: Any = await _lines(incoming)
        async with stdio_server(lines, anyio.wrap_file(wire)) as streams:
            yield streams


def _private(number: int, replacement: str | None) -> int:
    """A descriptor of the same file; `number` then leads to `replacement`, by default stderr."""
    own = os.dup(number)
    other = os.dup(2) if replacement is None else os.open(replacement, os.O_RDONLY)
    os.dup2(other, number)
    os.close(other)
    return own


async def _lines(descriptor: int) -> object:
    file = os.fdopen(descriptor, "rb", buffering=0)
    reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    except ValueError:  # a regular file, whose reader never waits
        return anyio.wrap_file(os.fdopen(os.dup(descriptor), encoding="utf-8", errors="replace"))
    return Lines(reader)
