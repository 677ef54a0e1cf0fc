"""All servers of a conversation: started in the background, asked for consent, ended together."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd import errors, messages
from shepherd.config.acceptance import AcceptanceStore
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderStore
from shepherd.config.secrets import ENVIRONMENT, Secrets
from shepherd.mcp.process import Launcher
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import (
    Consents,
    Server,
    ServerState,
    ServerStatus,
    Warn,
    all_servers,
    description,
    others,
)
from shepherd.tasks import end_tasks
from shepherd.tools.permissions import approval
from shepherd.tools.permissions.approval import Approver
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.tool import AnyTool

if TYPE_CHECKING:
    from shepherd.mcp.connection import Catalogue, Connection
    from shepherd.mcp.questions import Sampler


START_SECONDS = 10.0
"""The longest wait of a turn for servers that are starting."""
START = "start_mcp_server"
"""The name of the request to start a server of a project."""


class Entry(ServerStatus):
    """A server, with its connection once it was started, which keeps the state from then on."""

    connection: "Connection | None" = None

    @property
    def name(self) -> str:
        """The server's name."""
        return self.server.name

    @property
    def catalogue(self) -> "Catalogue | None":
        """What the server offers; None if it was not started."""
        return self.connection.catalogue if self.connection else None


class ServerHub:
    """The servers of one conversation; nothing is started before `begin`."""

    def __init__(
        self, servers: Iterable[Server], launcher: Launcher, consents: Consents, warn: Warn
    ) -> None:
        self.entries = [Entry(server) for server in servers]
        self.launcher = launcher
        self._sampler: Sampler | None = None
        self._disabled: tuple[str, ...] = ()
        self._consents = consents
        self._warn = warn
        self._start_task: asyncio.Task[None] | None = None
        self._has_changes = False
        """Whether the servers offer other tools than the last `update` has seen."""
        self._live_registry: ToolRegistry | None = None
        """The registry that gets later changes at once."""
        self._reported_late: set[str] = set()
        """The servers that the user knows to start slowly."""

    def add(self, servers: Iterable[Server]) -> None:
        """Use further servers; call it before `begin`. The name of another server is ignored."""
        names = {entry.name for entry in self.entries}
        for server in servers:
            if server.name in names:
                self._tell(server.name, f"of {server.file} is ignored: there is another one.")
                continue
            names.add(server.name)
            self.entries.append(Entry(server))

    @property
    def names(self) -> list[str]:
        """The names of all servers."""
        return [entry.name for entry in self.entries]

    def is_named_in(self, text: str) -> bool:
        """Whether `text` may name a prompt or a resource of a server."""
        return any(f"/{name}:" in text or f"@{name}:" in text for name in self.names)

    def begin(self, sampler: "Sampler | None" = None, disabled: Sequence[str] = ()) -> None:
        """Start the accepted servers in the background; needs a running event loop.

        `sampler` answers requests of servers. Tools with a name that a pattern in `disabled`
        matches are not offered.
        """
        self._sampler, self._disabled = sampler, tuple(disabled)
        if self._start_task is None:
            self._start_task = asyncio.create_task(self._start_accepted(), name="mcp")

    async def _start_accepted(self) -> None:
        """Start the servers that may be started; a task runs it, so that no prompt waits for it."""
        for entry in self.entries:
            if not entry.server.definition.enabled:
                entry.problem = "enabled = false"
            elif await asyncio.to_thread(self._consents.includes, entry.server):
                entry.state = ServerState.STARTING
            else:
                entry.state = ServerState.WAITING
        # the SDK takes long to import, so that a thread does it before the loop needs it
        for module in ("shepherd.mcp.links", "shepherd.mcp.tool"):
            await asyncio.to_thread(import_module, module)
        for entry in self.entries:
            if entry.state is ServerState.STARTING:
                self.start(entry)

    def start(self, entry: Entry) -> "Connection":
        """Start a server, or start it again; the connection is not open yet."""
        from shepherd.mcp.links import new_connection  # imports the SDK

        if entry.connection is None:
            warn = partial(self._tell, entry.name)
            entry.connection = new_connection(
                entry, self.launcher, warn, self._note_change, lambda: self._sampler
            )
        entry.connection.start()
        return entry.connection

    async def restart(self, entry: Entry, approver: Approver) -> None:
        """Start a server afresh; one of a project without consent is asked for first."""
        await self.stop(entry)
        if not await asyncio.to_thread(self._consents.includes, entry.server):
            await self.ask_for(entry, approver)
            return
        await self.start(entry).settled()

    async def stop(self, entry: Entry) -> None:
        """Stop a server for this session."""
        if entry.connection is not None:
            await entry.connection.stop()
        entry.state, entry.problem = ServerState.OFF, ""

    def find(self, name: str) -> Entry:
        """The server of this name; raises ConfigError."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise errors.ConfigError(f"There is no MCP server {name}.")

    async def ask(self, approver: Approver) -> None:
        """Ask once for consent to each server of the project that has none, and start it then."""
        if self._start_task is None:
            return
        await asyncio.shield(self._start_task)  # an interrupted turn must not end the start
        for entry in self.entries:
            if entry.state is ServerState.WAITING:
                await self.ask_for(entry, approver)

    async def ask_for(self, entry: Entry, approver: Approver) -> None:
        """Ask for consent to one server; without it, the server stays off."""
        server = entry.server
        request = approval.ApprovalRequest(
            messages.ToolCall(f"mcp-{server.name}", START, {"server": server.name}),
            (),
            preview=description(server),
            cause=f"{server.file.name} of this project starts the MCP server {server.name}",
        )
        answer = await approver.ask(request)
        if answer.choice is approval.Choice.DENY:
            entry.state, entry.problem = ServerState.OFF, answer.reason
            if answer.reason == approval.NO_TERMINAL:  # nobody was asked
                self._tell(
                    server.name,
                    f"of {server.file} is not started: it needs your consent, and there is no "
                    f"terminal to ask; `shepherd mcp accept {server.name}` gives it.",
                )
            return
        with suppress(errors.ConfigError):  # it is asked again in the next session
            await asyncio.to_thread(self._consents.add, server)
        self.start(entry)

    @property
    def is_starting(self) -> bool:
        """Whether a server has not answered yet; its tools are unknown."""
        return any(entry.state is ServerState.STARTING for entry in self.entries)

    async def settled(self, seconds: float = START_SECONDS) -> None:
        """Wait until the first start of each server has succeeded or failed, up to a time."""
        if self._start_task is None:
            return
        await asyncio.shield(self._start_task)  # an interrupted turn must not end the start
        try:
            async with asyncio.timeout(seconds):
                connections = [entry.connection for entry in self.entries if entry.connection]
                await asyncio.gather(*(connection.settled() for connection in connections))
        except TimeoutError:
            for entry in self.entries:
                is_late = entry.state is ServerState.STARTING
                if is_late and entry.name not in self._reported_late:
                    self._reported_late.add(entry.name)
                    self._tell(entry.name, "is still starting; its tools come with a later turn.")

    async def provide(self, registry: ToolRegistry, disabled: Sequence[str] = ()) -> None:
        """Start, and keep in `registry` what is offered; nobody is asked for consent.

        Later changes come into `registry` at once, also those of servers that start slowly.
        """
        self.begin(sampler=None, disabled=disabled)
        await self.ask(approval.DenyingApprover())
        await self.settled()
        self.update(registry)
        self._live_registry = registry

    def update(self, registry: ToolRegistry) -> bool:
        """Put the tools that the servers offer now into `registry`; False if nothing changed.

        Their order is that of the servers, so that a prompt stays the same from start to start.
        """
        if not self._has_changes:
            return False
        from shepherd.mcp.tool import ServerTool, server_tools  # imports the SDK

        self._has_changes = False
        for tool in registry:
            if isinstance(tool, ServerTool):
                registry.remove(tool.name)
        for entry in self.entries:
            tools: list[AnyTool] = [*server_tools(entry.connection)] if entry.connection else []
            for tool in tools:
                is_disabled = any(fnmatchcase(tool.name, pattern) for pattern in self._disabled)
                # a name that another tool has already stays with that one
                if registry.get(tool.name) is None and not is_disabled:
                    registry.add(tool)
        return True

    async def aclose(self) -> None:
        """End all servers at once."""
        if self._start_task is not None:
            await end_tasks(self._start_task)
        connections = [entry.connection for entry in self.entries if entry.connection]
        await asyncio.gather(*(connection.stop() for connection in connections))

    def _note_change(self) -> None:
        """A server offers something else: renew the registry that gets changes at once."""
        self._has_changes = True
        if self._live_registry is not None:
            self.update(self._live_registry)

    def _tell(self, name: str, text: str) -> None:
        self._warn(f"The MCP server {name} {text}")


def hub_of(
    servers: Sequence[Server],
    paths: Paths,
    policy: PermissionPolicy,
    sandbox: Sandbox,
    warn: Warn,
) -> ServerHub:
    """The hub of these servers, which can be none at first."""
    launcher = Launcher(policy, sandbox, paths.spill, server_secrets(paths), paths.mcp_logs)
    return ServerHub(servers, launcher, Consents(AcceptanceStore(paths.accepted_file)), warn)


def find_server(paths: Paths, cwd: Path, name: str) -> Server:
    """The server of this name, of the user or of the project in `cwd`; raises ConfigError."""
    problems: list[str] = []
    servers = {server.name: server for server in all_servers(paths, cwd, problems.append)}
    if name not in servers:
        # its definition may be wrong, or be ignored: then say so
        about_it = [problem for problem in problems if name in problem]
        missing = f"There is no MCP server {name}{others(name, servers)}."
        raise errors.ConfigError("\n".join(about_it) or missing)
    return servers[name]


def forget_secrets(paths: Paths, server: Server) -> None:
    """Delete the stored secrets of a server, and its login."""
    secrets = server_secrets(paths)
    for name, place in server.definition.secrets.items():
        secrets.delete(server.name, name, place)
    if server.definition.url:
        from shepherd.mcp.login import TokenStore  # imports the SDK

        TokenStore(server, secrets).forget()


def server_secrets(paths: Paths) -> ServerSecrets:
    """The secrets of servers; the variables with keys of providers belong to Shepherd."""
    try:
        providers = ProviderStore(paths.providers_file).all()
    except errors.ConfigError:  # the code that needs a provider reports it
        providers = []
    keys = [provider.api_key for provider in providers]
    own = {key.removeprefix(ENVIRONMENT) for key in keys if key.startswith(ENVIRONMENT)}
    return ServerSecrets(Secrets(paths.credentials_file, os.environ), os.environ, own)
