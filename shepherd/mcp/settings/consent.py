"""The servers of projects that the user has accepted, kept apart from the projects."""

import json
import shlex
from pathlib import Path
from typing import cast

from shepherd.config.files import exclusive, read_text, write_private
from shepherd.errors import ConfigError
from shepherd.mcp.settings.definition import Origin, Server

_MAX_BYTES = 1 << 20


class Consents:
    """Hashes of accepted definitions, in the file at `path`; a changed definition has another."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def includes(self, server: Server) -> bool:
        """Whether the server may be started; one of the user always may.

        A file that can't be read accepts nothing.
        """
        if server.origin is Origin.USER:
            return True
        try:
            return server.digest in self._accepted()
        except ConfigError:
            return False

    def add(self, server: Server) -> None:
        """Remember that the user accepted the server as it is; raises ConfigError or OSError."""
        with exclusive(self._path):
            accepted = {**self._accepted(), server.digest: f"{server.name} in {server.file}"}
            write_private(self._path, json.dumps(accepted, indent=1) + "\n")

    def remove(self, name: str, file: Path) -> None:
        """Forget all accepted definitions of a server; raises ConfigError or OSError."""
        with exclusive(self._path):
            text = f"{name} in {file}"
            accepted = {k: v for k, v in self._accepted().items() if v != text}
            write_private(self._path, json.dumps(accepted, indent=1) + "\n")

    def _accepted(self) -> dict[str, str]:
        try:
            data = json.loads(read_text(self._path, _MAX_BYTES))
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self._path}: not valid; remove it: {error}") from None
        if not isinstance(data, dict):
            raise ConfigError(f"{self._path}: not valid; remove it")
        return cast(dict[str, str], data)


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
