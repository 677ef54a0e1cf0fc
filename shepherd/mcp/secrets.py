"""Secrets of servers, and the environment and headers that are made with them."""

from collections.abc import Collection, Mapping
from functools import cached_property

from shepherd.config.provider import VENDORS
from shepherd.config.secrets import Secrets
from shepherd.errors import ConfigError
from shepherd.mcp.servers import REFERENCE, Place, Server, names_secret
from shepherd.tools.program import usual_variables

_OWN_PREFIX = "SHEPHERD_"


class ServerSecrets:
    """Finds and keeps the secrets of servers, apart from their settings."""

    def __init__(self, store: Secrets, env: Mapping[str, str], own: Collection[str] = ()) -> None:
        """`own` names further variables that hold keys of Shepherd."""
        self._store = store
        self._env = env
        self._own = own

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
        own = self._filled(server, server.definition.env, secrets)
        return {**usual_variables(self._env), **secrets, **own}

    def arguments(self, server: Server) -> list[str]:
        """The arguments of a server's command; raises ConfigError for a reference to a secret."""
        named = {str(number): text for number, text in enumerate(server.definition.args)}
        for text in named.values():
            for match in REFERENCE.finditer(text):
                if match[1] in server.definition.secrets or names_secret(match[1]):
                    raise ConfigError(
                        f"The MCP server {server.name} has {match[1]} in its command line, which "
                        "others on this machine can read; pass it in env."
                    )
        return [*self._filled(server, named, {}).values()]

    def headers(self, server: Server) -> dict[str, str]:
        """The headers of each request to a server; raises ConfigError."""
        return self._filled(server, server.definition.headers, self.values(server))

    def _filled(
        self, server: Server, texts: Mapping[str, str], secrets: Mapping[str, str]
    ) -> dict[str, str]:
        def value(name: str, default: str | None) -> str:
            if name in secrets:
                return secrets[name]
            if is_own_key(name) or name in self._own:
                raise ConfigError(
                    f"The MCP server {server.name} may not get Shepherd's own {name}; "
                    f"`shepherd mcp secret {server.name} {name}` stores a value for it."
                )
            if name not in self._env and default is not None:
                return default
            if name not in self._env:
                raise ConfigError(
                    f"The MCP server {server.name} needs the variable {name}, which is not set."
                )
            return self._env[name]

        return {
            key: REFERENCE.sub(lambda match: value(match[1], match[2]), text)
            for key, text in texts.items()
        }


def is_own_key(name: str) -> bool:
    """Whether a variable holds a key of Shepherd or of its providers."""
    vendors = {variable for vendor in VENDORS for variable in vendor.variables}
    return name in vendors or name.upper().startswith(_OWN_PREFIX)


def _entry(server: str, name: str) -> str:
    return f"mcp:{server}:{name}"
