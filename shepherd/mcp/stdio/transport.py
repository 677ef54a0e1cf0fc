"""The messages of a server over the pipes of its process, and their limits."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from shepherd.mcp.stdio.process import MAX_MESSAGE_BYTES, ServerProcess
from shepherd.tools.text import one_line

MAX_MALFORMED = 20
"""Lines of one connection that are not messages; after more, it is given up."""
MESSAGES_PER_SECOND = 500
MAX_BURST = 2000
"""Messages at once; a server that goes on to send more than this per second is ended."""

_SHOWN = 80

# the SDK's type of the second stream is private
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Any]


class Quota:
    """Counts messages: `MAX_BURST` at once, and `MESSAGES_PER_SECOND` on average."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(MAX_BURST)
        self._last = clock()

    def take(self) -> bool:
        """Count one message; False if there are too many."""
        now = self._clock()
        self._left = min(MAX_BURST, self._left + (now - self._last) * MESSAGES_PER_SECOND)
        self._last = now
        self._left -= 1
        return self._left >= 0


class Wire:
    """One connection's messages; `problem` is set when it breaks, and then `closed`."""

    def __init__(self, process: ServerProcess, warn: Callable[[str], None]) -> None:
        self.closed = asyncio.Event()
        self.problem = ""
        self._process = process
        self._warn = warn
        self._malformed = 0
        self._quota = Quota(asyncio.get_running_loop().time)

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Streams]:
        """The streams that the SDK reads and writes."""
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._receive, incoming)
                tasks.start_soon(self._send, outgoing)
                try:
                    yield read, write
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            for stream in (incoming, read, write, outgoing):
                stream.close()
            self.closed.set()

    async def _receive(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        try:
            while line := await self._process.read_line():
                message = self._parsed(line)
                if self.problem:
                    break
                if message is not None:
                    await incoming.send(SessionMessage(message))
        except ValueError:
            self.problem = f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB"
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass  # the connection ends
        finally:
            incoming.close()
            self.closed.set()

    def _parsed(self, line: bytes) -> types.JSONRPCMessage | None:
        """The message in a line; None for an empty or wrong line."""
        if not line.strip():
            return None
        if not self._quota.take():
            self.problem = f"it floods: more than {MESSAGES_PER_SECOND} messages per second"
            return None
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._count_malformed(line)
            return None
        drop_output_schemas(message)
        return message

    def _count_malformed(self, line: bytes) -> None:
        self._malformed += 1
        if self._malformed == 1:
            text = one_line(line[: 4 * _SHOWN].decode("utf-8", "replace").strip())[:_SHOWN]
            self._warn(f"wrote a line that is not a message, which is ignored: {text}")
        if self._malformed > MAX_MALFORMED:
            self.problem = f"more than {MAX_MALFORMED} of its lines are not messages"

    async def _send(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._process.write_line(text.encode())
        except OSError:
            self.problem = self.problem or "it does not read its stdin"
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # the connection ends
        finally:
            outgoing.close()


def drop_output_schemas(message: types.JSONRPCMessage) -> None:
    """Remove the schemas of results: the SDK would run their regular expressions."""
    if not isinstance(message, types.JSONRPCResponse):
        return
    tools = message.result.get("tools")
    for tool in cast(list[Any], tools) if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            cast(dict[str, Any], tool).pop("outputSchema", None)


def silence_sdk() -> None:
    """Keep the SDK's log out of the terminal, unless a handler is set up for it."""
    logger = logging.getLogger("mcp")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
