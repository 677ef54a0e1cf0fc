"""Servers as processes, in a working directory of a test."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.config.acceptance import AcceptanceStore
from shepherd.config.paths import Paths
from shepherd.config.secrets import Secrets
from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.events import EventCallback, ignore_events
from shepherd.mcp.hub import Entry, ServerHub
from shepherd.mcp.process import Launcher
from shepherd.mcp.questions import Sampler
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import Consents, Origin, Server, make_server
from shepherd.messages import ToolCall
from shepherd.tools.permissions.approval import Approval, Approver, Choice
from shepherd.tools.permissions.policy import PermissionPolicy, own_output
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.tool import ToolContext, ToolResult
from tests.approvers import ScriptedApprover
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
SDK_SERVER = {"command": sys.executable, "args": ["-m", "tests.mcp.everything"]}


@dataclass
class Office:
    """Servers, and the runner that calls their tools."""

    hub: ServerHub
    runner: ToolRunner
    notices: list[str]
    root: Path
    paths: Paths

    def entry(self, name: str) -> Entry:
        """The server of this name."""
        return self.hub.find(name)

    async def call(
        self, tool: str, /, on_event: EventCallback = ignore_events, **arguments: Any
    ) -> ToolResult:
        """The result of a call, after the offer was brought up to date."""
        self.hub.update(self.runner.registry)
        return await self.runner.run(ToolCall("call_1", tool, arguments), on_event=on_event)


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def paths_below(base: Path) -> Paths:
    """Shepherd's directories below `base`."""
    return Paths(base / "config", base / "state", base / "data", base / "cache")


def server(name: str, origin: Origin = Origin.USER, /, **values: Any) -> Server:
    """A definition."""
    return make_server(name, values, origin, Path("/somewhere/mcp.toml"))


def script(name: str, code: str, /, **values: Any) -> Server:
    """A server that is a small program of the standard library alone."""
    return server(name, command=sys.executable, args=["-S", "-E", "-c", code], **values)


@asynccontextmanager
async def open_office(
    base: Path,
    servers: Sequence[Server],
    *,
    sandbox: SandboxMode = SandboxMode.OFF,
    mode: ApproveMode = ApproveMode.ALL,
    env: dict[str, str] | None = None,
    approver: Approver | None = None,
    sampler: Sampler | None = None,
) -> AsyncGenerator[Office]:
    """Start servers in a directory below `base`."""
    paths, root = paths_below(base), base / "project"
    root.mkdir(exist_ok=True)
    policy = PermissionPolicy(root, mode, own=[own_output(paths.spill)])
    box, notices = Sandbox(sandbox), list[str]()
    secrets = ServerSecrets(Secrets(paths.credentials_file, env or {}), env or {})
    launcher = Launcher(policy, box, paths.spill, secrets, paths.mcp_logs)
    hub = ServerHub(
        servers, launcher, Consents(AcceptanceStore(paths.accepted_file)), notices.append
    )
    context = ToolContext(root, paths.spill, output_bytes=4096)
    asks = approver or ScriptedApprover([Approval(Choice.ONCE)] * 9)
    runner = ToolRunner(ToolRegistry(), policy, asks, context)
    hub.begin(sampler)
    try:
        await hub.settled(PATIENCE)
        yield Office(hub, runner, notices, root, paths)
    finally:
        await hub.aclose()


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and was not collected does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
