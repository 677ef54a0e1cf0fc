"""`shepherd mcp`: servers of the Model Context Protocol, and Shepherd as one."""

import asyncio
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from shepherd.cli.commands import arguments, output
from shepherd.cli.frontend import ended_by_signals
from shepherd.cli.request import load_settings, overrides_of
from shepherd.cli.terminal.secrets import read_key
from shepherd.config.acceptance import AcceptanceStore
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.model_choice import model_of_flags
from shepherd.errors import ConfigError, UsageError
from shepherd.mcp import servers
from shepherd.mcp.hub import find_server, forget_secrets, hub_of, server_secrets

mcp = typer.Typer(
    name="mcp",
    help="Servers of the Model Context Protocol, and Shepherd as one.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The server's name.")]
_Texts = list[str] | None


class AddOptions(Struct, frozen=True, kw_only=True):
    """The options of `mcp add`."""

    url: str = ""
    """A server that speaks HTTP, not a program."""
    env: Annotated[_Texts, typer.Option(metavar="NAME=VALUE")] = None
    """A variable."""
    header: Annotated[_Texts, typer.Option(metavar="NAME=VALUE")] = None
    """A header."""
    secret: Annotated[_Texts, typer.Option(metavar="NAME")] = None
    """A secret variable, which is asked for."""
    keyring: arguments.Keyring = False
    network: bool = False
    """Let it use the network."""
    no_sandbox: bool = False
    """Run it outside of the sandbox."""
    writable: Annotated[_Texts, typer.Option(metavar="DIRECTORY")] = None
    """A directory that it may change."""
    tools: Annotated[_Texts, typer.Option(metavar="PATTERN")] = None
    """Use only tools like this; repeatable."""
    timeout: float = 60.0
    """Seconds for each request."""


@mcp.command("add")
@arguments.with_option_groups
def add(
    name: Name,
    options: AddOptions,
    command: Annotated[
        list[str] | None, typer.Argument(help="Behind --: the program and its arguments.")
    ] = None,
) -> None:
    """Add a server: `shepherd mcp add NAME -- PROGRAM ARGUMENTS…`, or with --url.

    In values, ${NAME} stands for a secret or a variable.
    """
    paths = Paths.from_env(os.environ)
    store = servers.ServerStore(paths.mcp_file)
    if name in [server.name for server in store.all()]:
        raise UsageError(f"There is a server {name} already; remove it first.")
    place, secrets = "keyring" if options.keyring else "file", options.secret or []
    settings: dict[str, object] = {
        "command": (command or [""])[0],
        "args": (command or [])[1:],
        "url": options.url,
        "env": arguments.pairs("--env", options.env),
        "headers": arguments.pairs("--header", options.header),
        "secrets": dict.fromkeys(secrets, place),
        "network": options.network,
        "sandbox": not options.no_sandbox,
        "writable": [str(Path(path).expanduser().absolute()) for path in options.writable or []],
        "tools": options.tools or [],
        "timeout": options.timeout,
    }
    server = servers.make_server(name, settings, servers.Origin.USER, store.path)
    for secret in secrets:
        server_secrets(paths).save(name, secret, read_key(f"{secret}: "), place)
    store.save(server)
    output.note(f"The server {name} is added. `shepherd mcp test {name}` tries it.")


@mcp.command("list")
def list_servers() -> None:
    """List the servers of the user and of this project."""
    paths = Paths.from_env(os.environ)
    lines = summaries(paths, Path.cwd(), output.note)
    for line in lines:
        output.show(line)
    if not lines:
        output.note("There are no servers; `shepherd mcp add NAME -- PROGRAM` adds one.")


@mcp.command("show")
def show_server(name: Name) -> None:
    """Show the settings of a server; never a secret."""
    paths = Paths.from_env(os.environ)
    server = find_server(paths, Path.cwd(), name)
    definition = server.definition
    is_program = bool(definition.command)
    rows = {
        "name": server.name,
        "command" if is_program else "url": _place(server),
        "env": ", ".join(_assigned(key, value) for key, value in definition.env.items()),
        "headers": ", ".join(_assigned(key, value) for key, value in definition.headers.items()),
        "secrets": ", ".join(_secret(paths, server, key) for key in definition.secrets),
        "network": _yes(definition.network) if is_program else "",
        "sandbox": _yes(definition.sandbox) if is_program else "",
        "writable": ", ".join(definition.writable),
        "tools": ", ".join(definition.tools),
        "timeout": f"{definition.timeout:g} s",
        "state": _standing(server, servers.Consents(AcceptanceStore(paths.accepted_file))),
        "file": str(server.file),
        "log": str(paths.mcp_logs / f"{server.name}.log") if is_program else "",
    }
    output.show_rows(rows, width=10)


@mcp.command("test")
def test(context: typer.Context, name: Name) -> None:
    """Start a server, and list what it offers."""
    config = load_settings(Path.cwd(), os.environ, overrides_of(context))
    raise typer.Exit(asyncio.run(_probe(config, Path.cwd(), name)))


@mcp.command("remove")
def remove(name: Name) -> None:
    """Remove a server and its secrets."""
    paths = Paths.from_env(os.environ)
    store = servers.ServerStore(paths.mcp_file)
    forget_secrets(paths, store.remove(name))
    output.note(f"The server {name} is removed.")


@mcp.command("secret")
def secret(
    name: Name,
    variable: Annotated[str, typer.Argument(help="The secret's name.")],
    *,
    keyring: arguments.Keyring = False,
) -> None:
    """Store a secret of a server, which is asked for."""
    paths = Paths.from_env(os.environ)
    store = servers.ServerStore(paths.mcp_file)
    server = store.get(name)
    place = "keyring" if keyring else "file"
    settings = server.definition.model_dump(exclude_defaults=True)
    settings["secrets"] = {**server.definition.secrets, variable: place}
    # raises ConfigError for a wrong name, before the secret is asked for
    changed = servers.make_server(name, settings, servers.Origin.USER, store.path)
    server_secrets(paths).save(name, variable, read_key(f"{variable}: "), place)
    store.save(changed)
    output.note(f"{variable} of the server {name} is stored.")


@mcp.command("accept")
def accept(name: Name, yes: arguments.Yes = False) -> None:
    """Accept a server of this project, exactly as its file defines it now."""
    paths = Paths.from_env(os.environ)
    server = find_server(paths, Path.cwd(), name)
    if server.origin is servers.Origin.USER:
        raise UsageError(f"{name} is your own server; it needs no consent.")
    output.show(servers.description(server))
    if not yes:
        typer.confirm("Start it from now on?", abort=True)
    servers.Consents(AcceptanceStore(paths.accepted_file)).add(server)
    output.note(f"The server {name} is accepted.")


@mcp.command("login")
def login(name: Name) -> None:
    """Log in to a server that speaks HTTP, in your browser (OAuth)."""
    from shepherd.mcp.login import Login  # imports the SDK

    paths = Paths.from_env(os.environ)
    server = find_server(paths, Path.cwd(), name)
    if not server.definition.url:
        raise UsageError(f"{name} is a program; only servers with a url have a login.")
    if server.origin is servers.Origin.PROJECT:  # the user has to accept its address first
        accept(name)

    def show_url(url: str) -> None:
        output.note(f"Open this address in your browser:\n{url}")

    count = asyncio.run(Login(server, server_secrets(paths)).run(show_url))
    output.note(f"You are logged in to {name}; it offers {count} tools.")


class ServeOptions(Struct, frozen=True, kw_only=True):
    """The options of `mcp serve`."""

    tools: Annotated[str | None, typer.Option(metavar="NAMES")] = None
    """Only these tools, with commas between them; `ask` is the model."""
    http: Annotated[int | None, typer.Option(metavar="PORT", min=0, max=65535)] = None
    """Serve over HTTP on this port of 127.0.0.1; 0 takes a free one."""


@mcp.command("serve")
@arguments.with_option_groups
def serve(context: typer.Context, options: ServeOptions) -> None:
    """Serve Shepherd's tools, and `ask` for its model, to another agent on stdin and stdout.

    Rules, sandbox and settings are those of the directory. Calls that need approval are shown to
    the other agent's user, or denied if it can't show them.
    """
    from shepherd.cli.mcpserver import server  # imports the SDK

    def read(directory: Path) -> Config:
        return model_of_flags(load_settings(directory, os.environ, overrides_of(context)))

    names = [name.strip() for name in (options.tools or "").split(",") if name.strip()]
    if options.tools is not None and not names:
        raise UsageError("--tools is empty; write names with commas between them.")
    cwd, http = Path.cwd().resolve(), options.http
    service = server.McpService(read, cwd, [*dict.fromkeys(names)], at_roots=http is not None)
    serving = server.serve_stdio(service) if http is None else server.serve_http(service, http)
    raise typer.Exit(asyncio.run(ended_by_signals(serving)))


def summaries(paths: Paths, cwd: Path, warn: Callable[[str], None]) -> list[str]:
    """A line for each server: its name, its command or URL, and whether it may start."""
    every = servers.all_servers(paths, cwd, warn)
    consents = servers.Consents(AcceptanceStore(paths.accepted_file))
    width = max((len(server.name) for server in every), default=0)
    return [
        f"{server.name:<{width}}  {_place(server)}  ({_standing(server, consents)})"
        for server in every
    ]


def _place(server: servers.Server) -> str:
    """The command line or the URL."""
    definition = server.definition
    return definition.url or shlex.join([definition.command, *definition.args])


def _standing(server: servers.Server, consents: servers.Consents) -> str:
    """Whose server it is, and whether it may start: `of this project, not accepted`."""
    if not server.definition.enabled:
        return "off"
    if server.origin is servers.Origin.USER:
        return "yours"
    return "of this project" if consents.includes(server) else "of this project, not accepted"


def _assigned(key: str, value: str) -> str:
    """`KEY=value`; the value of a secret is hidden, unless it only names a variable."""
    return f"{key}={'…' if servers.names_secret(key) and '${' not in value else value}"


def _secret(paths: Paths, server: servers.Server, name: str) -> str:
    """`TOKEN (keyring)`: the place of a secret, or why it can't be read."""
    place = server.definition.secrets[name]
    try:
        value = server_secrets(paths).read(server.name, name, place)
    except ConfigError as error:
        return f"{name} ({error})"
    return f"{name} ({place if value else 'missing'})"


def _yes(value: object) -> str:
    return "yes" if value else "no"


async def _probe(config: Config, cwd: Path, name: str) -> int:
    """Show a server's offer, or why it can't be used; returns the exit code."""
    from shepherd.conversation.toolbox import build_policy, build_sandbox  # imports the SDK
    from shepherd.mcp.prompts import offer_lines  # imports the SDK

    paths = Paths.from_env(os.environ)
    server = find_server(paths, cwd, name)
    policy, sandbox = build_policy(config, paths, cwd), build_sandbox(config)
    hub = hub_of([server], paths, policy, sandbox, output.show)
    hub.begin()
    try:
        await hub.settled(server.definition.start_timeout + 5)  # the hub itself ends a late start
        [entry] = hub.entries
        for line in offer_lines(entry):
            output.show(line)
        return 0 if entry.state is servers.ServerState.READY else 1
    finally:
        await hub.aclose()
