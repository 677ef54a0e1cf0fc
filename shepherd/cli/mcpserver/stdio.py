"""The messages of an MCP client on stdin and stdout, which nothing else can reach."""

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, Any, cast

import anyio
from mcp.server.stdio import stdio_server

MAX_MESSAGE_BYTES = 64 << 20
"""Maximum length of one message; a longer one ends the connection."""

ANSWER_SECONDS = 10.0
"""The longest wait for the answers to open requests after the end of stdin."""


@dataclass(slots=True)
class OpenRequests:
    """The ids of the client's requests that have no answer yet."""

    ids: set[str] = field(default_factory=set[str])
    none: asyncio.Event = field(default_factory=asyncio.Event)

    def received(self, line: str) -> None:
        """Note a message of the client: a request, or the end of one by cancelling."""
        message = _object(line)
        if message.get("method") == "notifications/cancelled":
            params: object = message.get("params")
            if isinstance(params, dict):
                self._end(cast(dict[str, Any], params).get("requestId"))
        elif "method" in message and "id" in message:
            self.ids.add(json.dumps(message["id"]))

    def sent(self, line: str) -> None:
        """Note a message to the client, which may be an answer."""
        message = _object(line)
        if "method" not in message:
            self._end(message.get("id"))

    async def answered(self) -> None:
        """Wait until no request is open, up to ANSWER_SECONDS."""
        if self.ids:
            self.none.clear()
            try:
                await asyncio.wait_for(self.none.wait(), ANSWER_SECONDS)
            except TimeoutError:
                return

    def _end(self, id: object) -> None:
        self.ids.discard(json.dumps(id))
        if not self.ids:
            self.none.set()


class Lines:
    """Lines from a pipe; unlike a thread that reads, waiting for one can be cancelled."""

    def __init__(self, reader: asyncio.StreamReader, requests: OpenRequests) -> None:
        self._reader = reader
        self._requests = requests

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> str:
        try:
            data = await self._reader.readline()
        except (ValueError, OSError) as error:
            sys.stderr.write(f"shepherd: the connection ends: {error}\n")
            raise StopAsyncIteration from error
        if not data:
            await self._requests.answered()
            raise StopAsyncIteration
        line = data.decode("utf-8", "replace")
        self._requests.received(line)
        return line


class Wire:
    """The output, which notes the answers."""

    def __init__(self, file: IO[str], requests: OpenRequests) -> None:
        self._file = anyio.wrap_file(file)
        self._requests = requests
        self._line = ""

    async def write(self, text: str) -> None:
        """Write one message."""
        await self._file.write(text)
        self._line = text

    async def flush(self) -> None:
        """Send what was written."""
        await self._file.flush()
        self._requests.sent(self._line)


@asynccontextmanager
async def protocol_streams() -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of the SDK's server.

    File descriptor 0 then is empty, and 1 leads to stderr, also for programs that tools start.
    """
    if sys.stdin.isatty():
        sys.stderr.write("shepherd: waiting for an MCP client on stdin; Ctrl+C stops.\n")
    incoming, outgoing = _private(0, os.devnull), _private(1, None)
    requests = OpenRequests()
    with os.fdopen(outgoing, "w", encoding="utf-8") as file:
        lines: Any = Lines(await _reader(incoming), requests)
        wire: Any = Wire(file, requests)
        async with stdio_server(lines, wire) as streams:
            yield streams


def _private(number: int, replacement: str | None) -> int:
    """A descriptor of the same file; `number` then leads to `replacement`, by default stderr."""
    own = os.dup(number)
    other = os.dup(2) if replacement is None else os.open(replacement, os.O_RDONLY)
    os.dup2(other, number)
    os.close(other)
    return own


async def _reader(descriptor: int) -> asyncio.StreamReader:
    file = os.fdopen(descriptor, "rb", buffering=0)
    reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    else:  # a file, which never waits
        reader.feed_data(file.read())
        reader.feed_eof()
    return reader


def _object(line: str) -> dict[str, Any]:
    """The message; empty if it is not an object, which the SDK reports."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
