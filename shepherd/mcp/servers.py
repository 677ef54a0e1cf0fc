"""MCP servers in settings: definitions, their files, and consent to those of a project."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from pydantic import AfterValidator, Field, ValidationError, model_validator

from shepherd import errors, json_text, validation
from shepherd.config import acceptance, files, section
from shepherd.config.paths import Paths, project_mcp_files

Place = Literal["file", "keyring"]
REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
"""A reference to a secret or a variable: `${NAME}`, or `${NAME:-VALUE}` with a default."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,29}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|PASSPHRASE|_PASS$|AUTHORI[SZ]ATION|COOKIE|_DSN$",
    re.IGNORECASE,
)
_SECRET_OPTION = re.compile(r"api-?key|token|secret|passw", re.IGNORECASE)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def _check_url(url: str) -> str:
    """The URL; raises ValueError if it holds a secret, or would send one unencrypted."""
    validation.check_web_address(url, "store it with --secret")
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("must begin with https://, because tokens are sent there")
    return url


def _check_variables(names: dict[str, str]) -> dict[str, str]:
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a variable")
    return names


class ServerDefinition(section.Section):
    """A server: a command that is started, or the URL of one that runs."""

    command: str = ""
    """The program to start."""

    args: list[str] = []
    """Its arguments."""

    env: Annotated[dict[str, str], AfterValidator(_check_variables)] = {}
    """Variables of its environment; `${NAME}` stands for a secret of the server, or for a variable
    of Shepherd's environment."""

    secrets: Annotated[dict[str, Place], AfterValidator(_check_variables)] = {}
    """Names of its secrets, and where each is kept: `file` or `keyring`."""

    url: Annotated[str, AfterValidator(_check_url)] = ""
    """The URL of a server that speaks HTTP."""

    type: Literal["", "sse"] = ""
    """`sse` = the older HTTP+SSE; "" = streamable HTTP, else HTTP+SSE."""

    headers: dict[str, str] = {}
    """Headers of each request, with `${NAME}` as above."""

    client_id: str = ""
    """The OAuth client, or the `https` URL of its client-id metadata document; "" = register one
    with the server."""

    client_secret: str = ""
    """The secret of the OAuth client, as `${NAME}`."""

    scopes: str = ""
    """OAuth scopes; "" = those that it asks for."""

    network: bool = False
    """Whether its process may use the network."""

    sandbox: bool = True
    """Whether its process runs in the sandbox."""

    writable: list[str] = []
    """Directories that its process may change, too."""

    timeout: float = Field(60.0, gt=0, le=3600, strict=False)
    """Seconds for each request."""

    start_timeout: float = Field(30.0, gt=0, le=600, strict=False)
    """Seconds for its start."""

    tools: list[str] = []
    """Patterns of the tools to use; none = all."""

    enabled: bool = True
    """Whether it is started."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> ServerDefinition:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")
        if self.command and (self.headers or self.type):
            raise ValueError("headers and type belong to a url; a command gets env")
        if any("\0" in text for text in (self.command, *self.args, *self.env.values())):
            raise ValueError("has a NUL character")
        return self


class Origin(StrEnum):
    """The author of a definition."""

    USER = "user"
    PROJECT = "project"


class Server(Struct, frozen=True):
    """A named definition; `file` is where it was read."""

    name: str
    definition: ServerDefinition
    origin: Origin
    file: Path


class ServerState(StrEnum):
    """The state of a server."""

    WAITING = "needs your consent"
    OFF = "off"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"


class ServerStatus(Struct):
    """The state of a server now, and why it is in it, "" if there is nothing to say."""

    server: Server
    state: ServerState = ServerState.OFF
    problem: str = ""


def make_server(name: str, values: Mapping[str, object], origin: Origin, file: Path) -> Server:
    """A checked server; raises ConfigError that names the error, never a value."""
    check_name(name)
    try:
        definition = ServerDefinition.model_validate(dict(values))
    except ValidationError as error:
        texts: list[str] = []
        for problem in error.errors(include_url=False):
            key = validation.key_of(problem)  # "" for a problem of the whole definition
            similar = validation.did_you_mean(key, ServerDefinition.model_fields)
            place, unknown = f"{name}.{key}".rstrip("."), f"unknown setting {name}.{key}{similar}"
            texts.append(validation.describe_problem(problem, place, unknown=unknown))
        raise errors.ConfigError(f"{file}: " + "; ".join(texts)) from None
    if origin is Origin.USER:
        _check_secrets(name, definition)
    return Server(name, definition, origin, file)


def check_name(name: str) -> None:
    """Raise ConfigError unless `name` is valid for a server."""
    if not _NAME.fullmatch(name) or "__" in name:
        raise errors.ConfigError(
            f"{name!r} can't be a server's name: use up to 30 small letters, digits, '-' or '_', "
            "a letter first."
        )


def names_secret(name: str) -> bool:
    """Whether a variable or a header of this name usually holds a secret."""
    return _SECRET_NAME.search(name) is not None


def _secret_word(definition: ServerDefinition) -> str:
    """The option or the parameter with a secret in the command line or the URL, "" for none.

    Both "--token=abc" and "--token abc" have one; "--token" before another option has none.
    """
    for option, following in zip_longest(definition.args, definition.args[1:], fillvalue=""):
        key, equals, value = option.partition("=")
        if not equals:
            value = "" if following.startswith("-") else following
        if key.startswith("-") and value and _SECRET_OPTION.search(key):
            return key
    query = parse_qsl(urlsplit(definition.url).query)
    return next((f"the parameter {key}" for key, _ in query if names_secret(key)), "")


def _check_secrets(name: str, definition: ServerDefinition) -> None:
    """Raise ConfigError if a secret is written in the settings."""
    if word := _secret_word(definition):
        raise errors.ConfigError(
            f"{name}: others on this machine can read {word}; pass its value as a variable, with "
            "--secret NAME."
        )
    texts = (*definition.env.items(), *definition.headers.items())
    for key, value in (*texts, ("client_secret", definition.client_secret)):
        if names_secret(key) and value and not REFERENCE.search(value):
            raise errors.ConfigError(
                f"{name}: the value of {key} is a secret and must not be in the settings; "
                f"`shepherd mcp secret {name} {key.upper().replace('-', '_')}` stores it, "
                "and ${NAME} stands for it."
            )


_IGNORED = ("type", "transport", "disabled", "description", "alwaysAllow", "autoApprove")
"""Keys of `.mcp.json` that say nothing new, or that only the user may decide."""

Warn = Callable[[str], None]


def all_servers(paths: Paths, cwd: Path, warn: Warn) -> list[Server]:
    """The user's servers, then the project's; `warn` gets a sentence for each wrong one.

    A server of a project never replaces one of the user.
    """
    servers = {server.name: server for server in _valid_servers(paths.mcp_file, Origin.USER, warn)}
    for file in project_mcp_files(cwd):
        if file == paths.mcp_file:  # the project is the directory of the user's settings
            continue
        for server in _valid_servers(file, Origin.PROJECT, warn):
            first = servers.setdefault(server.name, server)
            if first is not server:
                warn(f"{file}: the server {server.name} is ignored: {first.file} defines it.")
    return list(servers.values())


def _valid_servers(file: Path, origin: Origin, warn: Warn) -> list[Server]:
    """The valid servers in a file; `warn` gets a sentence for each other one."""
    result: list[Server] = []
    try:
        tables = _tables(file)
    except errors.ConfigError as error:
        warn(str(error))
        return []
    for name, values in tables.items():
        try:
            result.append(_server(name, values, origin, file))
        except errors.ConfigError as error:
            warn(f"The MCP server {name} is not used: {error}")
    return result


def _tables(file: Path) -> Mapping[str, object]:
    """The definitions in a TOML file of ours, or in a `.mcp.json`; {} without the file."""
    try:
        text = files.read_text(file, files.MAX_FILE_BYTES)
        if file.suffix == ".json":
            tables: object = json_text.as_object(json.loads(text)).get("mcpServers", {})
        else:
            tables = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise errors.ConfigError(f"{file}: can't be read: {error}") from None
    if not isinstance(tables, dict):
        raise errors.ConfigError(f"{file}: mcpServers must be a table of servers")
    return cast(Mapping[str, object], tables)


def _server(name: str, values: object, origin: Origin, file: Path) -> Server:
    """The server that a file defines, in our words or in those of other programs."""
    if not isinstance(values, dict):
        raise errors.ConfigError(f"{file}: {name} must be a table with a command or a url")
    settings = cast(dict[str, Any], values)
    if file.suffix == ".json":
        is_sse = "sse" in (settings.get("type"), settings.get("transport"))
        settings = {key: value for key, value in settings.items() if key not in _IGNORED}
        if is_sse:
            settings["type"] = "sse"
    rights = ("sandbox", "writable", "secrets")  # which only the user can give
    taken = next((key for key in rights if key in settings), "")
    if origin is Origin.PROJECT and taken:
        raise errors.ConfigError(
            f"{file}: a project's file may not set {name}.{taken}; "
            f"`shepherd mcp add {name}` makes the server your own."
        )
    return make_server(name, settings, origin, file)


class ServerStore(Struct, frozen=True):
    """The user's servers in the file at `path`, which need not exist; it is read for each call."""

    path: Path

    def all(self) -> list[Server]:
        """All servers in the order of the file; raises ConfigError."""
        tables = _tables(self.path)
        return [_server(name, values, Origin.USER, self.path) for name, values in tables.items()]

    def get(self, name: str) -> Server:
        """The server of this name; raises ConfigError that lists the existing ones."""
        servers = {server.name: server for server in self.all()}
        if name not in servers:
            raise errors.ConfigError(f"There is no server {name}{others(name, servers)}.")
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


def others(name: str, servers: Collection[str]) -> str:
    """What to say after a name that no server has: a similar one, or all that there are."""
    known = f"; there are {', '.join(servers)}" if servers else "; there is none yet"
    return validation.did_you_mean(name, servers) or known


class Consents(Struct, frozen=True):
    """Finds and records consent; a changed definition needs another one."""

    store: acceptance.AcceptanceStore

    def includes(self, server: Server) -> bool:
        """Whether the server may be started; one of the user always may.

        A file that can't be read gives no consent.
        """
        if server.origin is Origin.USER:
            return True
        try:
            return self.store.is_accepted(_proposal(server))
        except errors.ConfigError:
            return False

    def add(self, server: Server) -> None:
        """Record consent to the server as it is; raises ConfigError."""
        self.store.accept(_proposal(server), f"MCP server {server.name} in {server.file}")

    def withdraw(self, server: Server) -> None:
        """Remove the consent to the server as it is; raises ConfigError."""
        self.store.withdraw(_proposal(server))


def description(server: Server) -> str:
    """Everything that a start of the server does, in lines."""
    what = server.definition
    lines = [shlex.join([what.command, *what.args]) if what.command else what.url]
    lines += [f"{name}={value}" for name, value in what.env.items()]
    lines += [f"{name}: {value}" for name, value in what.headers.items()]
    if what.command:
        # always in it: a file of a project may not switch the sandbox off
        lines.append("in the sandbox, " + ("with network" if what.network else "without network"))
    lines.append(f"defined in {server.file}")
    return "\n".join(lines)


def _proposal(server: Server) -> acceptance.Proposal:
    """What the user accepts: the whole definition, so that any change of it is a new question."""
    content = {
        "name": server.name,
        "file": str(server.file),
        **server.definition.model_dump(),
    }
    return acceptance.Proposal("mcp", server.file.parent, content)
