"""The MCP servers that an editor passes with a session."""

import re
from collections.abc import Iterable
from pathlib import Path

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer
from pydantic import ValidationError

from shepherd.errors import ConfigError
from shepherd.mcp.servers import Origin, Server, ServerDefinition, check_name
from shepherd.validation import problems_of

EditorServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

EDITOR = Path("the editor")
MAX_NAME = 30


def convert_servers(servers: Iterable[EditorServer]) -> tuple[list[Server], list[str]]:
    """The servers that can be used, and a sentence for each other one.

    The user has configured them in the editor, so they need no consent. They run in the sandbox,
    with network. Their variables and headers are kept in memory only.
    """
    converted: list[Server] = []
    problems: list[str] = []
    for server in servers:
        try:
            converted.append(_convert(server))
        except (ConfigError, ValidationError) as error:
            reason = problems_of(error) if isinstance(error, ValidationError) else error
            problems.append(f"The MCP server {server.name} of the editor is not used: {reason}")
    return converted, problems


def _convert(server: EditorServer) -> Server:
    match server:
        case McpServerStdio():
            values = {
                "command": server.command,
                "args": server.args,
                "env": {variable.name: variable.value for variable in server.env},
                "network": True,
            }
        case HttpMcpServer() | SseMcpServer():
            headers = {header.name: header.value for header in server.headers}
            kind = "sse" if isinstance(server, SseMcpServer) else ""
            values = {"url": server.url, "headers": headers, "type": kind}
        case _:
            raise ConfigError("Shepherd connects to servers over stdio and HTTP only.")
    definition = ServerDefinition.model_validate(values)
    return Server(_name(server.name), definition, Origin.USER, EDITOR)


def _name(text: str) -> str:
    """The editor's name of a server as part of the names of its tools; raises ConfigError."""
    name = re.sub(r"[^a-z0-9-]+", "_", text.lower()).strip("_-")
    name = re.sub(r"^[^a-z]+", "", name)[:MAX_NAME].rstrip("_-")
    check_name(name)
    return name
