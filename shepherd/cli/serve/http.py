"""Starts the HTTP server from the settings."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from shepherd.agents import TASK, RunTask
from shepherd.backends.base import Concurrency
from shepherd.backends.connect import far_address
from shepherd.cli.commands.output import warn
from shepherd.cli.serve.database import prepared_database, server_keys, unchecked_keys
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.section import LIVE
from shepherd.config.server import ServerSection
from shepherd.config.settings import Config, LayerName, all_fields, find_field
from shepherd.conversation import model_slot, session_start
from shepherd.conversation.build import backend_opener, unsaved
from shepherd.conversation.toolbox import ToolOffer, Workspace, build_workspace
from shepherd.errors import ConfigError, UsageError
from shepherd.knowledge.instructions import USE_SKILL
from shepherd.plugins import Plugins
from shepherd.server.access.keys import Keys
from shepherd.server.agent.agent import Agent
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.server.agent.tasks import turn_task
from shepherd.server.app import Offer
from shepherd.server.listen import UnsafeAddressError
from shepherd.server.operation.lifecycle import Reloaded
from shepherd.server.pool.pool import ModelPool, open_pool
from shepherd.server.run import ReloadPool, serve
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.tls import ServerTls, TlsFiles
from shepherd.session import Session
from shepherd.turn import TurnLimits

PARALLEL = Concurrency(4)
"""The number of parallel requests if the settings do not set it."""


class ServerParts(NamedTuple):
    """The arguments of `serve`, in its order."""

    open_models: Callable[[], Awaitable[ModelPool]]
    settings: ServerSettings
    keys: Keys | None
    offer: Offer
    reload: ReloadPool


async def serve_config(
    config: Config,
    cwd: Path,
    providers: ProviderBook,
    read: Callable[[], Config],
    *,
    insecure: bool,
) -> int:
    """Serve until a signal ends it; `read` reads the settings again.

    Raises ConfigError and errors from loading the backend.
    """
    async with server_parts(config, cwd, providers, read, insecure=insecure) as parts:
        with refusal_of_flags(config):
            await serve(*parts)
    return 0


@asynccontextmanager
async def server_parts(
    config: Config,
    cwd: Path,
    providers: ProviderBook,
    read: Callable[[], Config],
    *,
    insecure: bool,
) -> AsyncGenerator[ServerParts]:
    """The parts of a server, as `serve_config` describes; warnings go to stderr."""
    paths = Paths.from_env(os.environ)
    for warning in (*config.warnings, *providers.warnings(), *unchecked_keys(config, paths)):
        warn(warning)

    opener = backend_opener(providers, PARALLEL)
    open_models = partial(open_pool, config, providers, opener)
    settings = server_settings(config, insecure=insecure)
    settings.signing_key = paths.signing_key_file
    settings.responses_file = paths.responses_file
    settings.usage_file = paths.usage_file
    settings.slots_folder = paths.slots
    settings.audit_file = paths.audit_file
    settings.postgres = prepared_database(config, os.environ)
    keys = server_keys(config, settings.postgres, paths)
    reloader = Reloader(config, read, settings, providers, opener, keys)
    async with AsyncExitStack() as opened:
        offer = Offer()
        if settings.tools or settings.use_tools:
            notices = session_start.Notices()
            notices.listen(warn)
            workspace = build_workspace(_for_clients(config), paths, cwd, notices, Session)
            opened.push_async_callback(workspace.aclose)
            tools = workspace.tool_runner(config) if settings.tools else None
            # without keys nobody could approve a call, so none waits for an answer
            seconds = settings.approval_seconds if keys is not None else 0
            agent = None
            if settings.use_tools:
                agent = server_agent(workspace, config, providers, seconds)
            if workspace.servers is not None:
                await workspace.servers.provide(workspace.registry, config.tools.disabled)
            offer = Offer(tools, agent)
        yield ServerParts(open_models, settings, keys, offer, reloader.reload)


def _for_clients(config: Config) -> Config:
    """The settings of a workspace for all clients: nothing is saved.

    Files of the working directory are read only if `knowledge.server` allows it.
    """
    section = config.knowledge
    enabled = section.enabled and section.server
    knowledge = section.model_copy(update={"enabled": enabled})
    return unsaved(config).model_copy(update={"knowledge": knowledge})


@contextmanager
def refusal_of_flags(config: Config) -> Generator[None]:
    """Turns a refused address into a UsageError if the command line has named it."""
    try:
        yield
    except UnsafeAddressError as error:
        if config.source("server.host").layer is LayerName.FLAG:
            raise UsageError(str(error)) from error
        raise


def server_settings(config: Config, *, insecure: bool) -> ServerSettings:
    """The `server` section, with what other settings say about the server."""
    section = config.server
    return ServerSettings(
        **dict(section),
        insecure=insecure,
        thinking=config.model.thinking,
        max_tokens=config.model.max_tokens,
        models_dir=config.llamacpp.models_path,
        # with a Unix socket, only who names an address wants one as well
        tcp=not section.socket or _is_set(config, "server.host") or _is_set(config, "server.port"),
        tls=tls_files(config),
        plugins=Plugins(config.plugins.disabled, config.plugins.settings),
    )


def _is_set(config: Config, key: str) -> bool:
    """Whether somebody has set it, in a file, a variable or an option."""
    return config.source(key).layer is not LayerName.DEFAULT


def tls_files(config: Config) -> TlsFiles | None:
    """The files of the certificate, None without encryption; raises ConfigError."""
    section = config.server
    certificate = _path(section.tls_cert)
    if certificate is None:
        if section.tls_key or section.tls_password_file:
            raise ConfigError("server.tls_key is set without server.tls_cert; set both.")
        return None
    return TlsFiles(certificate, _path(section.tls_key), _path(section.tls_password_file))


def _path(text: str) -> Path | None:
    """A path of the settings; None for an empty one."""
    return Path(text).expanduser().absolute() if text else None


def _system_message(workspace: Workspace, config: Config) -> str:
    """The agent's system message, fitted into the context of the settings."""
    base = session_start.default_system_message(config, workspace.cwd)
    offers_skills = workspace.registry.get(USE_SKILL) is not None
    size = config.llamacpp.context_size
    return workspace.knowledge.system_message(base, size, offers_skills=offers_skills)


def server_agent(
    workspace: Workspace, config: Config, providers: ProviderBook, approval_seconds: float = 0
) -> Agent:
    """The agent of the server in a workspace.

    Calls that need approval wait `approval_seconds` for a client that may approve; with 0 they are
    denied.
    """
    section, model = config.server, config.model
    approvals = ClientApprovals(approval_seconds) if approval_seconds else None
    offers_tasks = model.tools and config.tools.tasks and TASK not in config.tools.disabled
    if offers_tasks and workspace.registry.get(TASK) is None:
        workspace.registry.add(_task(config, providers))
    limits = TurnLimits(max_rounds=section.tool_rounds, max_hints=model.max_hints)
    return Agent(
        tools=workspace.tool_runner(config, approvals),
        offer=ToolOffer(workspace.registry, config),
        system_message=_system_message(workspace, config),
        limits=limits,
        show=section.show_tool_calls,
        approvals=approvals,
        max_tasks=max(1, config.tools.tasks),  # with 0, tasks are not offered at all
    )


def _task(config: Config, providers: ProviderBook) -> RunTask:
    """`task`, whose model can be one of the providers that may be asked."""
    names: list[str] = []
    if config.tools.ask_providers:
        names = [provider.name for provider in providers.all() if provider.ask]
    return turn_task(names, lambda name: far_address(providers.pick(name)))


_LIVE_SECTIONS = ("llamacpp.", "sampling.")
_UNUSED_SECTIONS = ("terminal.",)
"""Sections that mean nothing for a server, so that a change of them needs no restart."""


class Reloader(Struct):
    """Applies changed settings to a server; `read` reads them.

    Models stay loaded where nothing that concerns them has changed.
    """

    config: Config
    read: Callable[[], Config]
    settings: ServerSettings
    providers: ProviderBook
    opener: model_slot.BackendOpener
    keys: Keys | None = None

    async def reload(self, pool: ModelPool, tls: ServerTls | None) -> Reloaded:
        """Read and apply the settings; raises ShepherdError, and then nothing has changed."""
        # what can be checked is checked before the first change
        config = await asyncio.to_thread(self._read)
        new = server_settings(config, insecure=self.settings.insecure)
        if (tls is None) != (new.tls is None):
            # the sockets speak TLS or not from the start
            raise ConfigError("server.tls_cert can't be added or removed without a restart.")
        if new.tls is not None:
            await asyncio.to_thread(ServerTls, new.tls)  # only checks it; raises ConfigError
        changed = [key for key in all_fields() if self.config.value(key) != config.value(key)]
        reopens = any(key.startswith(_LIVE_SECTIONS) for key in changed)
        await pool.reconfigure(config, self.providers, self.opener, reopens=reopens)
        if tls is not None and new.tls is not None:
            await asyncio.to_thread(tls.replace, new.tls)
        for name, field in ServerSection.model_fields.items():
            if LIVE in field.metadata:
                setattr(self.settings, name, getattr(new, name))
        self.settings.max_tokens = new.max_tokens  # of the section `model`, but live too
        self.config = config
        return Reloaded(
            [key for key in changed if _is_live(key)],
            [key for key in changed if not _is_live(key) and not key.startswith(_UNUSED_SECTIONS)],
        )

    def _read(self) -> Config:
        """The settings of the files; raises for damaged files of providers and of keys, too.

        Those two are read again while the server runs. It would only log a damaged file of
        providers, and lose its models.
        """
        config = self.read()
        self.providers.all()
        if self.keys is not None:
            self.keys.keys()
        return config


def _is_live(key: str) -> bool:
    """Whether a changed setting counts at once; any other one needs a restart."""
    field = find_field(key)
    return key.startswith(_LIVE_SECTIONS) or (field is not None and LIVE in field.metadata)
