"""The messages of an MCP client on stdin and stdout, which nothing else can reach."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, Any, cast

import anyio
from mcp.server.stdio import stdio_server

from shepherd.cli.terminal.lines import read_lines, take_streams

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
    """The client's messages; at their end it waits for the answers to open requests."""

    def __init__(self, lines: asyncio.Queue[bytes | None], requests: OpenRequests) -> None:
        self._lines = lines
        self._requests = requests

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> str:
        data = await self._lines.get()
        if data is None:
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
    """The streams of the SDK's server; see `take_streams`."""
    if sys.stdin.isatty():
        sys.stderr.write("shepherd: waiting for an MCP client on stdin; Ctrl+C stops.\n")
    source, target = take_streams()
    requests = OpenRequests()
    with os.fdopen(target, "w", encoding="utf-8") as file:
        lines: Any = Lines(read_lines(source, MAX_MESSAGE_BYTES), requests)
        wire: Any = Wire(file, requests)
        async with stdio_server(lines, wire) as streams:
            yield streams


def _object(line: str) -> dict[str, Any]:
    """The message; empty if it is not an object, which the SDK reports."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
