"""MCP servers in lines of text, and the test of one."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from shepherd.config.acceptance import AcceptanceStore
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.toolbox import build_policy, build_sandbox
from shepherd.errors import ConfigError
from shepherd.mcp.hub import find_server, hub_of, server_secrets
from shepherd.mcp.prompts import offer_lines
from shepherd.mcp.servers import Consents, Origin, Server, ServerState, all_servers, names_secret

HIDDEN = "…"


def summaries(paths: Paths, cwd: Path, warn: Callable[[str], None]) -> list[str]:
    """A line for each server."""
    servers = all_servers(paths, cwd, warn)
    consents = Consents(AcceptanceStore(paths.accepted_file))
    width = max((len(server.name) for server in servers), default=0)
    return [
        f"{server.name:<{width}}  {place(server)}  ({_standing(server, consents)})"
        for server in servers
    ]


def details(paths: Paths, cwd: Path, name: str) -> list[tuple[str, str]]:
    """The settings of a server; raises ConfigError if there is none of this name."""
    server = find_server(paths, cwd, name)
    one = server.definition
    consents = Consents(AcceptanceStore(paths.accepted_file))
    rows = [
        ("name", server.name),
        ("command" if one.command else "url", place(server)),
        ("env", ", ".join(_assigned(key, value) for key, value in one.env.items())),
        ("headers", ", ".join(_assigned(key, value) for key, value in one.headers.items())),
        ("secrets", ", ".join(_secret(paths, server, key) for key in one.secrets)),
        ("network", _yes(one.network) if one.command else ""),
        ("sandbox", _yes(one.sandbox) if one.command else ""),
        ("writable", ", ".join(one.writable)),
        ("tools", ", ".join(one.tools)),
        ("timeout", f"{one.timeout:g} s"),
        ("state", _standing(server, consents)),
        ("file", str(server.file)),
        ("log", str(paths.mcp_logs / f"{server.name}.log") if one.command else ""),
    ]
    return [(key, text) for key, text in rows if text]


def place(server: Server) -> str:
    """The command line or the URL."""
    one = server.definition
    return one.url or shlex.join([one.command, *one.args])


def _standing(server: Server, consents: Consents) -> str:
    if not server.definition.enabled:
        return "off"
    if server.origin is Origin.USER:
        return "yours"
    return "of this project" if consents.includes(server) else "of this project, not accepted"


def _assigned(key: str, value: str) -> str:
    return f"{key}={HIDDEN if names_secret(key) and '${' not in value else value}"


def _secret(paths: Paths, server: Server, name: str) -> str:
    where = server.definition.secrets[name]
    try:
        is_there = bool(server_secrets(paths).read(server.name, name, where))
    except ConfigError as error:
        return f"{name} ({error})"
    return f"{name} ({where if is_there else 'missing'})"


def _yes(value: object) -> str:
    return "yes" if value else "no"


async def probe(config: Config, cwd: Path, name: str, show: Callable[[str], None]) -> int:
    """Show a server's offer, or why it can't be used; returns the exit code."""
    paths = Paths.from_env(os.environ)
    server = find_server(paths, cwd, name)
    policy, sandbox = build_policy(config, paths, cwd), build_sandbox(config)
    hub = hub_of([server], paths, policy, sandbox, show)
    hub.begin()
    try:
        await hub.settled(server.definition.start_timeout + 5)
        [entry] = hub.entries
        for line in offer_lines(entry):
            show(line)
        return 0 if entry.current is ServerState.READY else 1
    finally:
        await hub.aclose()
