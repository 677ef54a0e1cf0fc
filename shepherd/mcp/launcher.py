"""Starts the processes of servers, in the sandbox, and ends them."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from shepherd.config.choices import SandboxMode
from shepherd.errors import ConfigError, ToolError
from shepherd.mcp.process import ServerLog, ServerProcess
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import Server
from shepherd.own_programs import path_outside
from shepherd.tools.confinement import Rights, Shielding
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.program import Program, Startable
from shepherd.tools.sandbox.profile import Limits, Profile
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.shell.process import Guard

_LIMITS = Limits(cpu_seconds=None)
"""A server lives as long as the session, so the time of its processor has no bound."""

T = TypeVar("T")
Warn = Callable[[str], None]


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
            await _finished(resources.close)

    async def _start(
        self, server: Server, environment: Mapping[str, str], resources: ExitStack, warn: Warn
    ) -> tuple[subprocess.Popen[bytes], int]:
        """The started process, and our end of its stdin."""
        program = _program(server, self.root, environment.get("PATH", ""))
        argv = [program, *await asyncio.to_thread(self.secrets.arguments, server)]
        theirs, ours = os.pipe()
        try:
            with os.fdopen(theirs, "rb") as stdin:
                order = Program(argv, self.root, environment, stdin)
                confined = await self._confined(server, order, warn)
                startable = await _finished(partial(resources.enter_context, confined))
                popen = startable.start()
            resources.enter_context(Guard(popen.pid))
        except (OSError, ToolError) as error:
            os.close(ours)
            raise ConfigError(f"{argv[0]} can't be started: {_reason(error)}") from error
        except BaseException:
            os.close(ours)
            raise
        return popen, ours

    async def _confined(
        self, server: Server, program: Program, warn: Warn
    ) -> AbstractContextManager[Startable]:
        required = self._sandbox.mode is SandboxMode.REQUIRED
        if not server.definition.sandbox:
            if required:
                raise ConfigError("tools.sandbox is required, but its settings switch it off")
            return nullcontext(program)
        box = (await self._sandbox.find()).box
        if box is not None:
            return box.enter(program, await asyncio.to_thread(self._profile, server, program.argv))
        missing = await self._sandbox.missing()
        if required:
            raise ConfigError(f"it needs a sandbox (tools.sandbox = required). {missing}")
        if self._sandbox.mode is SandboxMode.AUTO and self._sandbox.is_new(f"mcp {missing}"):
            warn(f"{missing} MCP servers run without one.")
        return nullcontext(program)

    def _profile(self, server: Server, argv: Iterable[str]) -> Profile:
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
    """The full path of the program; raises ConfigError if there is none."""
    command = server.definition.command
    name = str(root / Path(command).expanduser()) if "/" in command else command
    path = path or os.defpath
    if not server.definition.sandbox and "/" not in command:
        path = path_outside(root, path)  # a model may have written the program there
    program = shutil.which(name, path=path)
    if program is None:
        raise ConfigError(f"there is no program {command}")
    return str(Path(program).absolute())


def _named_places(argv: Iterable[str], profile: Profile) -> list[Path]:
    """The directories of the program and of the files in its arguments, unless they are broad."""
    result: list[Path] = []
    for word in argv:
        if not word.startswith("/"):
            continue
        path = Path(word)
        for one in (path, path.resolve()):
            place = one if one.is_dir() else one.parent
            if (place.parent / "pyvenv.cfg").is_file():
                place = place.parent
            if "node_modules" in place.parts:  # a package imports others beside it
                place = Path(*place.parts[: place.parts.index("node_modules") + 1])
            broad = any(top.is_relative_to(place) for top in (profile.home, profile.root))
            if path.exists() and len(place.parts) > 2 and not broad:
                result.append(place)
    return [*dict.fromkeys(result)]


async def _finished(work: Callable[[], T]) -> T:
    """Run blocking work in a thread to its end, also if the task is cancelled meanwhile."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _reason(error: OSError | ToolError) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
