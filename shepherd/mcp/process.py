"""A running MCP server: its pipes, its log, and its end."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from shepherd.config.files import make_private_directory

MAX_LOG_BYTES = 1 << 20
"""A longer log becomes the previous one, which replaces an older one."""
_MAX_LINE = 8192
_ERROR = re.compile(r"\b\w*Error\b|\berror:")


class ServerLog:
    """Appends to a private file of a limited size; secrets are replaced by stars.

    Errors of the disk are ignored, because a log must not end a server.
    """

    def __init__(self, path: Path, secrets: Collection[str] = ()) -> None:
        self._path = path
        self._secrets = [secret.encode() for secret in secrets if secret]
        self._pending = b""
        self.last_line = ""
        self._last_error = ""

    def feed(self, data: bytes) -> bool:
        """Take more output; whole lines are written."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _MAX_LINE:
            lines.append(self._pending)
            self._pending = b""
        if lines:
            self._write(lines)
        return True

    def close(self) -> None:
        """Write the rest."""
        if self._pending:
            self._write([self._pending])
            self._pending = b""

    def _write(self, lines: list[bytes]) -> None:
        hidden = [self._hidden(line) for line in lines]
        texts = [line.decode("utf-8", "replace").strip() for line in hidden]
        self._note_last(texts)
        with contextlib.suppress(OSError):
            make_private_directory(self._path.parent)
            if self._path.exists() and self._path.stat().st_size > MAX_LOG_BYTES:
                self._path.replace(self._path.with_suffix(".log.1"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(b"\n".join(hidden)[:MAX_LOG_BYTES] + b"\n")

    def _note_last(self, lines: list[str]) -> None:
        """Keep the last line, or the last one that names an error: Node prints more after it."""
        named = [line for line in lines if _ERROR.search(line)]
        if named:
            self._last_error = named[-1]
        words = [line for line in lines if any(map(str.isalnum, line))]
        self.last_line = self._last_error or (words[-1] if words else self.last_line)

    def _hidden(self, line: bytes) -> bytes:
        for secret in self._secrets:
            line = line.replace(secret, b"***")
        return line


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
