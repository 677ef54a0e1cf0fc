"""Puts the servers of a conversation together."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from shepherd.config.acceptance import AcceptanceStore
from shepherd.config.paths import Paths
from shepherd.config.providers.store import ProviderStore
from shepherd.config.secrets import ENVIRONMENT, Secrets
from shepherd.errors import ConfigError
from shepherd.mcp.hub import ServerHub
from shepherd.mcp.settings.consent import Consents
from shepherd.mcp.settings.definition import Server
from shepherd.mcp.settings.files import all_servers
from shepherd.mcp.settings.secrets import ServerSecrets
from shepherd.mcp.stdio.launcher import Launcher
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.validation import did_you_mean


def build_hub(
    paths: Paths, policy: PermissionPolicy, sandbox: Sandbox, warn: Callable[[str], None]
) -> ServerHub | None:
    """The servers of the user and of the project in a directory; None if there are none."""
    servers = all_servers(paths, policy.cwd, warn)
    return hub_of(servers, paths, policy, sandbox, warn) if servers else None


def hub_of(
    servers: Sequence[Server],
    paths: Paths,
    policy: PermissionPolicy,
    sandbox: Sandbox,
    warn: Callable[[str], None],
) -> ServerHub:
    """The hub of these servers, which can be none at first."""
    launcher = Launcher(policy, sandbox, paths.spill, server_secrets(paths), paths.mcp_logs)
    return ServerHub(servers, launcher, Consents(AcceptanceStore(paths.accepted_file)), warn)


def find_server(paths: Paths, cwd: Path, name: str) -> Server:
    """The server of this name, of the user or of the project in `cwd`; raises ConfigError."""
    problems: list[str] = []
    servers = {server.name: server for server in all_servers(paths, cwd, problems.append)}
    if name not in servers:
        known = f"; there are {', '.join(servers)}" if servers else "; there is none yet"
        about = [problem for problem in problems if name in problem]
        missing = f"There is no MCP server {name}{did_you_mean(name, servers) or known}."
        raise ConfigError("\n".join(about) or missing)
    return servers[name]


def forget_secrets(paths: Paths, server: Server) -> None:
    """Delete the stored secrets of a server, and its login."""
    secrets = server_secrets(paths)
    for name, place in server.definition.secrets.items():
        secrets.delete(server.name, name, place)
    if server.definition.url:
        from shepherd.mcp.http.login import TokenStore  # imports the SDK

        TokenStore(server, secrets).forget()


def server_secrets(paths: Paths) -> ServerSecrets:
    """The secrets of servers; the variables with keys of providers belong to Shepherd."""
    try:
        providers = ProviderStore(paths.providers_file).all()
    except ConfigError:  # the code that needs a provider reports it
        providers = []
    keys = [provider.api_key for provider in providers]
    own = {key.removeprefix(ENVIRONMENT) for key in keys if key.startswith(ENVIRONMENT)}
    return ServerSecrets(Secrets(paths.credentials_file, os.environ), os.environ, own)
