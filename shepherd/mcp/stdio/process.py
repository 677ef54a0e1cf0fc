"""A running server: its pipes, and its end."""

import asyncio
import contextlib
import os
import signal
import subprocess
from types import TracebackType
from typing import Self

from shepherd.mcp.stdio.log import ServerLog

MAX_MESSAGE_BYTES = 16 << 20
"""The maximum length of one message."""

_LEAVE_SECONDS = 1.0  # for a server that ends when its stdin is closed
_TERM_SECONDS = 1.0
_MAX_NAP = 0.02


class _Stderr(asyncio.Protocol):
    def __init__(self, log: ServerLog) -> None:
        self._log = log

    def data_received(self, data: bytes) -> None:
        self._log.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._log.close()


class ServerProcess:
    """A process group that speaks through pipes; the context ends it.

    The process leads its group. `stdin` is the number of our end of its pipe.
    """

    def __init__(self, popen: subprocess.Popen[bytes], stdin: int, log: ServerLog) -> None:
        self._popen = popen
        self._stdin = stdin
        self._log = log
        self._reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
        self._transports: list[asyncio.BaseTransport] = []
        self._writer: asyncio.StreamWriter | None = None

    @property
    def pid(self) -> int:
        """The number of the process, and of its group."""
        return self._popen.pid

    @property
    def last_words(self) -> str:
        """The last line that it wrote to stderr."""
        return self._log.last_line

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        reading = asyncio.StreamReaderProtocol(self._reader)
        out, _ = await loop.connect_read_pipe(lambda: reading, self._popen.stdout)
        err, _ = await loop.connect_read_pipe(lambda: _Stderr(self._log), self._popen.stderr)
        pipe = os.fdopen(self._stdin, "wb", 0)
        flow = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        writing, _ = await loop.connect_write_pipe(lambda: flow, pipe)
        self._writer = asyncio.StreamWriter(writing, flow, None, loop)
        self._transports = [out, err, writing]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._end()
        finally:
            self._kill()
            for transport in self._transports:
                transport.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._popen.wait, 2)

    async def read_line(self) -> bytes:
        """The next line, b"" at the end; raises ValueError for one that is too long."""
        return await self._reader.readline()

    async def write_line(self, data: bytes) -> None:
        """Write a line; raises OSError if the process does not read any more."""
        if self._writer is None or self._writer.is_closing():
            raise BrokenPipeError("the server's stdin is closed")
        self._writer.write(data + b"\n")
        await self._writer.drain()

    async def exited(self) -> None:
        """Wait until the leader of the group has ended."""
        if hasattr(os, "pidfd_open"):
            await self._exited_by_descriptor()
            return
        while True:
            if self._popen.poll() is not None:
                return
            await asyncio.sleep(0.5)

    async def _exited_by_descriptor(self) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        try:
            descriptor = os.pidfd_open(self._popen.pid)
        except ProcessLookupError:
            return
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    async def _end(self) -> None:
        """Close its stdin, then ask it to end."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.transport.abort()  # what is not sent yet would keep it open
        if await self._has_ended(_LEAVE_SECONDS):
            return
        self._signal(signal.SIGTERM)
        await self._has_ended(_TERM_SECONDS)

    async def _has_ended(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline, nap = loop.time() + seconds, 0.001
        while self._popen.poll() is None:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(nap)
            nap = min(nap * 1.5, _MAX_NAP)
        return True

    def _kill(self) -> None:
        """End the rest of the group, also after its leader has ended."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)
