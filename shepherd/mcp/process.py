"""The process of an MCP server: started in the sandbox, its pipes, its log, and its end."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from shepherd.config.files import make_private_directory
from shepherd.config.section import SandboxMode
from shepherd.errors import ConfigError, ToolError
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import Server, Warn
from shepherd.own_programs import path_outside
from shepherd.tasks import in_thread_to_end
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.program import Program
from shepherd.tools.sandbox.profile import Limits, Profile
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.shell.process import guarded
from shepherd.tools.shielding import Rights, Shielding

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
        self._unfinished_line = b""
        self.last_line = ""
        self._last_error = ""

    def feed(self, data: bytes) -> None:
        """Take more output; whole lines are written, so that no secret is cut in two."""
        *lines, self._unfinished_line = (self._unfinished_line + data).split(b"\n")
        if len(self._unfinished_line) > _MAX_LINE:
            lines.append(self._unfinished_line)
            self._unfinished_line = b""
        if lines:
            self._write(lines)

    def close(self) -> None:
        """Write the last line, if its end is missing."""
        if self._unfinished_line:
            self._write([self._unfinished_line])
            self._unfinished_line = b""

    def _write(self, lines: list[bytes]) -> None:
        """Append these lines without secrets; a file that is too long makes room for a new one."""
        for secret in self._secrets:
            lines = [line.replace(secret, b"***") for line in lines]
        self._note_last([line.decode("utf-8", "replace").strip() for line in lines])
        with contextlib.suppress(OSError):
            make_private_directory(self._path.parent)
            if self._path.exists() and self._path.stat().st_size > MAX_LOG_BYTES:
                self._path.replace(self._path.with_suffix(".log.1"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(b"\n".join(lines)[:MAX_LOG_BYTES] + b"\n")

    def _note_last(self, lines: list[str]) -> None:
        """Keep the last line, or the last one that names an error: Node prints more after it."""
        for line in lines:
            if _ERROR.search(line):
                self._last_error = line
            if any(map(str.isalnum, line)):  # a frame or a closing brace says nothing
                self.last_line = line
        self.last_line = self._last_error or self.last_line


MAX_MESSAGE_BYTES = 16 << 20
"""The maximum length of one message."""

_LEAVE_SECONDS = 1.0  # for a server that ends when its stdin is closed
_TERM_SECONDS = 1.0
_KILL_SECONDS = 2.0


class _Stderr(asyncio.Protocol):
    """Passes what the process writes to stderr to its log."""

    def __init__(self, log: ServerLog) -> None:
        self._log = log

    def data_received(self, data: bytes) -> None:
        self._log.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._log.close()


class ServerProcess:
    """A process group that speaks through pipes; the context ends it.

    The process leads its group. `stdin` is the number of our end of its pipe, and `log` gets what
    it writes to stderr.
    """

    def __init__(self, popen: subprocess.Popen[bytes], stdin: int, log: ServerLog) -> None:
        self._popen = popen
        self._stdin = stdin
        self.log = log
        self._reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
        self._transports: list[asyncio.BaseTransport] = []
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        pipe = os.fdopen(self._stdin, "wb", 0)
        try:
            await self._connect(pipe)
        except BaseException:  # nobody else would end the process, also after a cancellation
            await self.__aexit__()
            for unused in filter(None, (pipe, self._popen.stdout, self._popen.stderr)):
                unused.close()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        try:
            await self._end()
        finally:
            self._signal(signal.SIGKILL)  # the rest of the group, also after its leader has ended
            for transport in self._transports:
                transport.close()
            await self._has_ended(_KILL_SECONDS)  # so that it does not stay as a zombie

    async def _connect(self, pipe: FileIO) -> None:
        """Read and write the pipes of the process by the loop."""
        loop = asyncio.get_running_loop()
        reading = asyncio.StreamReaderProtocol(self._reader)
        stdout, _ = await loop.connect_read_pipe(lambda: reading, self._popen.stdout)
        self._transports.append(stdout)
        stderr, _ = await loop.connect_read_pipe(lambda: _Stderr(self.log), self._popen.stderr)
        self._transports.append(stderr)
        # the writer waits through this protocol while the pipe is full; it reads nothing
        flow_control = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        stdin, _ = await loop.connect_write_pipe(lambda: flow_control, pipe)
        self._transports.append(stdin)
        self._writer = asyncio.StreamWriter(stdin, flow_control, None, loop)

    async def read_line(self) -> bytes:
        """The next line, b"" at the end; raises ValueError for one that is too long."""
        return await self._reader.readline()

    async def write_line(self, data: bytes) -> None:
        """Write a line; raises OSError if the process does not read any more."""
        if self._writer is None or self._writer.is_closing():
            raise BrokenPipeError("the server's stdin is closed")
        self._writer.write(data + b"\n")
        await self._writer.drain()

    async def _end(self) -> None:
        """Close its stdin, then ask it to end."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.transport.abort()  # what is not sent yet would keep it open
        if await self._has_ended(_LEAVE_SECONDS):
            return
        self._signal(signal.SIGTERM)
        await self._has_ended(_TERM_SECONDS)

    async def _has_ended(self, seconds: float) -> bool:
        """Whether the process ends within this time."""
        try:
            await asyncio.to_thread(self._popen.wait, seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _signal(self, number: int) -> None:
        """Send a signal to the whole group, if any of it is left."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)


_LIMITS = Limits(cpu_seconds=None)
"""A server lives as long as the session, so the time of its processor has no bound."""


class Launcher:
    """Starts servers in a working directory, under the rules of a conversation."""

    def __init__(
        self,
        policy: PermissionPolicy,
        sandbox: Sandbox,
        spill_dir: Path,
        secrets: ServerSecrets,
        logs: Path,
    ) -> None:
        self.root = policy.cwd
        self._sandbox = sandbox
        self._shielding = Shielding(policy, sandbox, spill_dir)
        self.secrets = secrets
        self._logs = logs

    def log_file(self, server: Server) -> Path:
        """The file with the server's stderr."""
        return self._logs / f"{server.name}.log"

    @asynccontextmanager
    async def started(self, server: Server, warn: Warn) -> AsyncGenerator[ServerProcess]:
        """The server's process, which has ended when the context ends.

        Raises ConfigError if it must not or can't be started.
        """
        environment = await asyncio.to_thread(self.secrets.environment, server)
        secrets = await asyncio.to_thread(self.secrets.values, server)
        log = ServerLog(self.log_file(server), [*secrets.values()])
        resources = ExitStack()
        try:
            popen, stdin = await self._start(server, environment, resources, warn)
            async with ServerProcess(popen, stdin, log) as process:
                yield process
        finally:
            await in_thread_to_end(resources.close)

    async def _start(
        self, server: Server, environment: Mapping[str, str], resources: ExitStack, warn: Warn
    ) -> tuple[subprocess.Popen[bytes], int]:
        """The started process, and our end of its stdin.

        `resources` gets what must be released after the process: its box, and its guard.
        """
        path = _program(server, self.root, environment.get("PATH", ""))
        argv = [path, *await asyncio.to_thread(self.secrets.arguments, server)]
        theirs, ours = os.pipe()
        try:
            with os.fdopen(theirs, "rb") as stdin:
                program = Program(argv, self.root, environment, stdin)
                confined = await self._confined(server, program, warn)
                startable = await in_thread_to_end(partial(resources.enter_context, confined))
                popen = startable.start()
            resources.enter_context(guarded(popen.pid))
        except (OSError, ToolError) as error:
            os.close(ours)
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
            raise ConfigError(f"{argv[0]} can't be started: {reason}") from error
        except BaseException:
            os.close(ours)
            raise
        return popen, ours

    async def _confined(
        self, server: Server, program: Program, warn: Warn
    ) -> AbstractContextManager[Program]:
        """The program in its box, or without one if the settings allow that; else ConfigError."""
        is_required = self._sandbox.mode is SandboxMode.REQUIRED
        if not server.definition.sandbox:
            if is_required:
                raise ConfigError("tools.sandbox is required, but its settings switch it off")
            return nullcontext(program)
        box = (await self._sandbox.find()).box
        if box is not None:
            return box.enter(program, await asyncio.to_thread(self._profile, server, program.argv))
        missing = await self._sandbox.missing()
        if is_required:
            raise ConfigError(f"it needs a sandbox (tools.sandbox = required). {missing}")
        # each reason is told once
        if self._sandbox.mode is SandboxMode.AUTO and self._sandbox.is_new(f"mcp {missing}"):
            warn(f"{missing} MCP servers run without one.")
        return nullcontext(program)

    def _profile(self, server: Server, argv: Iterable[str]) -> Profile:
        """What the box lets the server read, write and reach; raises ConfigError."""
        definition = server.definition
        profile, is_complete = self._shielding.profile(
            self.root, Rights(network=definition.network)
        )
        if not is_complete:
            raise ConfigError(
                "the working directory holds too many files to hide every secret in it; "
                "sandbox = false starts it without the sandbox"
            )
        writable = [Path(path).expanduser().resolve() for path in definition.writable]
        return replace(
            profile,
            readable=(*profile.readable, *_named_places(argv, profile)),
            writable=(*profile.writable, *writable),
            limits=_LIMITS,
        )


def _program(server: Server, root: Path, path: str) -> str:
    """The full path of the program; raises ConfigError if there is none.

    `path` is the PATH of its environment.
    """
    command = server.definition.command
    name, path = command, path or os.defpath
    if "/" in command:
        name = str(root / Path(command).expanduser())
    elif not server.definition.sandbox:
        path = path_outside(root, path)  # a model may have written the program there
    program = shutil.which(name, path=path)
    if program is None:
        raise ConfigError(f"there is no program {command}")
    return str(Path(program).absolute())


def _named_places(argv: Iterable[str], profile: Profile) -> list[Path]:
    """The directories of the program and of the files in its arguments, unless they are broad.

    "/home/me/.venv/bin/python" gives "/home/me/.venv", and where its links lead.
    """
    result: list[Path] = []
    paths = [Path(word) for word in argv if word.startswith("/")]
    for path in filter(Path.exists, paths):
        for file in (path, path.resolve()):
            place = file if file.is_dir() else file.parent
            if (place.parent / "pyvenv.cfg").is_file():  # its packages are beside its programs
                place = place.parent
            if "node_modules" in place.parts:  # a package imports others beside it
                place = Path(*place.parts[: place.parts.index("node_modules") + 1])
            # "/usr" or the home directory would let the server read almost everything
            is_top = any(top.is_relative_to(place) for top in (profile.home, profile.root))
            if len(place.parts) > 2 and not is_top:
                result.append(place)
    return [*dict.fromkeys(result)]
