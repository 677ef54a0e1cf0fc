"""The user's consent to the servers of projects."""

import shlex

from shepherd.config.acceptance import AcceptanceStore, Proposal
from shepherd.errors import ConfigError
from shepherd.mcp.settings.definition import Origin, Server


class Consents:
    """Finds and records consent; a changed definition needs another one."""

    def __init__(self, store: AcceptanceStore) -> None:
        self._store = store

    def includes(self, server: Server) -> bool:
        """Whether the server may be started; one of the user always may.

        A file that can't be read gives no consent.
        """
        if server.origin is Origin.USER:
            return True
        try:
            return self._store.is_accepted(_proposal(server))
        except ConfigError:
            return False

    def add(self, server: Server) -> None:
        """Record consent to the server as it is; raises ConfigError."""
        self._store.accept(_proposal(server), f"MCP server {server.name} in {server.file}")

    def withdraw(self, server: Server) -> None:
        """Remove the consent to the server as it is; raises ConfigError."""
        self._store.withdraw(_proposal(server))


def description(server: Server) -> str:
    """Everything that a start of the server does, in lines."""
    one = server.definition
    lines = [shlex.join([one.command, *one.args]) if one.command else one.url]
    lines += [f"{name}={value}" for name, value in one.env.items()]
    lines += [f"{name}: {value}" for name, value in one.headers.items()]
    if one.command:
        lines.append("in the sandbox, " + ("with network" if one.network else "without network"))
    lines.append(f"defined in {server.file}")
    return "\n".join(lines)


def _proposal(server: Server) -> Proposal:
    content = {
        "name": server.name,
        "file": str(server.file),
        **server.definition.model_dump(),
    }
    return Proposal("mcp", server.file.parent, content)
