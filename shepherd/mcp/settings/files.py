"""The files with definitions: the user's own, and those of a project."""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from shepherd.config.files import read_text
from shepherd.config.layers import MAX_FILE_BYTES
from shepherd.config.paths import Paths, project_mcp_files
from shepherd.errors import ConfigError
from shepherd.mcp.settings.definition import Origin, Server, make_server
from shepherd.validation import did_you_mean

_IGNORED = ("type", "transport", "disabled", "description", "alwaysAllow", "autoApprove")
"""Keys of `.mcp.json` that say nothing new, or that only the user may decide."""

Warn = Callable[[str], None]


def all_servers(paths: Paths, cwd: Path, warn: Warn) -> list[Server]:
    """The user's servers, then the project's; `warn` gets a sentence for each wrong one.

    A server of a project never replaces one of the user.
    """
    servers = {server.name: server for server in _tolerant(paths.mcp_file, Origin.USER, warn)}
    for file in project_mcp_files(cwd):
        if file == paths.mcp_file:
            continue
        for server in _tolerant(file, Origin.PROJECT, warn):
            known = servers.setdefault(server.name, server)
            if known is not server:
                warn(f"{file}: the server {server.name} is ignored: {known.file} defines it.")
    return list(servers.values())


def _tolerant(file: Path, origin: Origin, warn: Warn) -> list[Server]:
    """The valid servers in a file."""
    result: list[Server] = []
    try:
        tables = _tables(file)
    except ConfigError as error:
        warn(str(error))
        return []
    for name, values in tables.items():
        try:
            result.append(_server(name, values, origin, file))
        except ConfigError as error:
            warn(f"The MCP server {name} is not used: {error}")
    return result


def _tables(file: Path) -> Mapping[str, object]:
    try:
        text = read_text(file, MAX_FILE_BYTES)
        if file.suffix == ".json":
            data: object = json.loads(text)
            whole = cast(dict[str, object], data) if isinstance(data, dict) else {}
            tables = whole.get("mcpServers", {})
        else:
            tables = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: can't be read: {error}") from None
    if not isinstance(tables, dict):
        raise ConfigError(f"{file}: mcpServers must be a table of servers")
    return cast(Mapping[str, object], tables)


def _server(name: str, values: object, origin: Origin, file: Path) -> Server:
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: {name} must be a table with a command or a url")
    settings = cast(dict[str, Any], values)
    if file.suffix == ".json":
        is_sse = "sse" in (settings.get("type"), settings.get("transport"))
        settings = {key: value for key, value in settings.items() if key not in _IGNORED}
        settings |= {"type": "sse"} if is_sse else {}
    if origin is Origin.PROJECT:
        settings = _without_rights(name, settings, file)
    return make_server(name, settings, origin, file)


def _without_rights(name: str, settings: dict[str, Any], file: Path) -> dict[str, Any]:
    """The settings of a project's server; raises ConfigError if they take rights."""
    for key in ("sandbox", "writable", "secrets"):
        if key in settings:
            raise ConfigError(
                f"{file}: a project's file may not set {name}.{key}; "
                f"`shepherd mcp add {name}` makes the server your own."
            )
    return settings


class ServerStore:
    """The user's servers in the file at `path`, which need not exist; it is read for each call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Server]:
        """All servers in the order of the file; raises ConfigError."""
        tables = _tables(self.path)
        return [_server(name, values, Origin.USER, self.path) for name, values in tables.items()]

    def get(self, name: str) -> Server:
        """The server of this name; raises ConfigError that lists the existing ones."""
        servers = {server.name: server for server in self.all()}
        if name not in servers:
            known = f"; there are {', '.join(servers)}" if servers else "; there is none yet"
            raise ConfigError(f"There is no server {name}{did_you_mean(name, servers) or known}.")
        return servers[name]

    def save(self, server: Server) -> None:
        """Add the server, or replace the one of its name; comments stay."""
        from shepherd.config.edit import save_table

        save_table(self.path, server.name, server.definition.model_dump(exclude_defaults=True))

    def remove(self, name: str) -> Server:
        """Remove the server and return it; raises ConfigError if it is missing."""
        from shepherd.config.edit import remove_table

        server = self.get(name)
        remove_table(self.path, name)
        return server
