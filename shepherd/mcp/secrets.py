"""Secrets of servers, and the environment and headers that are made with them."""

import re
from collections.abc import Collection, Mapping
from functools import cached_property

from shepherd.config.provider import VENDORS
from shepherd.config.secrets import Secrets
from shepherd.errors import ConfigError
from shepherd.mcp.servers import REFERENCE, Place, Server, names_secret
from shepherd.tools.program import usual_variables


class ServerSecrets:
    """Finds and keeps the secrets of servers, apart from their settings."""

    def __init__(
        self, store: Secrets, env: Mapping[str, str], own_variables: Collection[str] = ()
    ) -> None:
        """`own_variables` are further variables that hold keys of Shepherd."""
        self._store = store
        self._env = env
        self._own_variables = own_variables

    @cached_property
    def has_keyring(self) -> bool:
        """Whether the system has a usable keyring."""
        return self._store.has_keyring()

    def save(self, server: str, name: str, value: str, place: Place) -> None:
        """Store a secret; raises ConfigError."""
        self._store.store(_entry(server, name), value, place)

    def read(self, server: str, name: str, place: Place) -> str:
        """A stored secret, "" if it is missing; raises ConfigError."""
        return self._store.read(_entry(server, name), place)

    def delete(self, server: str, name: str, place: Place) -> None:
        """Delete a stored secret, if there is one."""
        self._store.delete(_entry(server, name), place)

    def values(self, server: Server) -> dict[str, str]:
        """The secrets of a server by name; raises ConfigError if one is missing."""
        result: dict[str, str] = {}
        for name, place in server.definition.secrets.items():
            value = self.read(server.name, name, place).strip()
            if not value:
                raise ConfigError(
                    f"The secret {name} of the MCP server {server.name} is missing; "
                    f"`shepherd mcp secret {server.name} {name}` stores it."
                )
            result[name] = value
        return result

    def environment(self, server: Server) -> dict[str, str]:
        """The environment of a server's process; raises ConfigError for an unknown reference.

        It has the usual variables, those of the definition and the secrets, and nothing else.
        """
        secrets = self.values(server)
        settings = server.definition.env.items()
        variables = {name: self._filled(server, text, secrets) for name, text in settings}
        return {**usual_variables(self._env), **secrets, **variables}

    def arguments(self, server: Server) -> list[str]:
        """The arguments of a server's command; raises ConfigError for a reference to a secret."""
        args = server.definition.args
        names = [match["name"] for text in args for match in REFERENCE.finditer(text)]
        for name in names:
            if name in server.definition.secrets or names_secret(name):
                raise ConfigError(
                    f"The MCP server {server.name} has {name} in its command line, which "
                    "others on this machine can read; pass it in env."
                )
        return [self._filled(server, text, {}) for text in args]

    def headers(self, server: Server) -> dict[str, str]:
        """The headers of each request to a server; raises ConfigError."""
        secrets, settings = self.values(server), server.definition.headers.items()
        return {name: self._filled(server, text, secrets) for name, text in settings}

    def client_secret(self, server: Server) -> str:
        """The secret of the OAuth client of the settings, "" for none; raises ConfigError."""
        return self._filled(server, server.definition.client_secret, self.values(server))

    def _filled(self, server: Server, text: str, secrets: Mapping[str, str]) -> str:
        """The text with values in place of `${NAME}`: secrets of the server, else variables."""

        def value(reference: re.Match[str]) -> str:
            name: str = reference["name"]
            default: str | None = reference["default"]
            if name in secrets:
                return secrets[name]
            if is_own_key(name) or name in self._own_variables:
                raise ConfigError(
                    f"The MCP server {server.name} may not get Shepherd's own {name}; "
                    f"`shepherd mcp secret {server.name} {name}` stores a value for it."
                )
            setting = self._env.get(name, default)
            if setting is None:
                raise ConfigError(
                    f"The MCP server {server.name} needs the variable {name}, which is not set."
                )
            return setting

        return REFERENCE.sub(value, text)


def is_own_key(name: str) -> bool:
    """Whether a variable holds a key of Shepherd or of its providers."""
    vendors = {variable for vendor in VENDORS for variable in vendor.variables}
    return name in vendors or name.upper().startswith("SHEPHERD_")


def _entry(server: str, name: str) -> str:
    return f"mcp:{server}:{name}"
