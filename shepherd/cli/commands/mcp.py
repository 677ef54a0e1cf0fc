"""`shepherd mcp`: servers of the Model Context Protocol, and Shepherd as one."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from shepherd.cli.commands.arguments import with_option_groups
from shepherd.cli.launch import ended_by_signals
from shepherd.cli.request import load_settings
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.cli.terminal.secrets import read_key
from shepherd.config.acceptance import AcceptanceStore
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.model_choice import model_of_flags
from shepherd.errors import UsageError
from shepherd.mcp.hub import find_server, forget_secrets, server_secrets
from shepherd.mcp.servers import Consents, Origin, ServerStore, description, make_server

if TYPE_CHECKING:
    from shepherd.mcp.servers import ServerStore


mcp = typer.Typer(
    name="mcp",
    help="Servers of the Model Context Protocol, and Shepherd as one.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The server's name.")]
Keyring = Annotated[bool, typer.Option("--keyring", help="Keep secrets in the system's keyring.")]
_Pairs = list[str] | None


@dataclass(frozen=True, kw_only=True)
class AddOptions:
    """The options of `mcp add`."""

    url: Annotated[str, typer.Option(help="A server that speaks HTTP, not a program.")] = ""
    env: Annotated[_Pairs, typer.Option(metavar="NAME=VALUE", help="A variable.")] = None
    header: Annotated[_Pairs, typer.Option(metavar="NAME=VALUE", help="A header.")] = None
    secret: Annotated[
        _Pairs, typer.Option(metavar="NAME", help="A secret variable, which is asked for.")
    ] = None
    keyring: Keyring = False
    network: Annotated[bool, typer.Option("--network", help="Let it use the network.")] = False
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Run it outside of the sandbox.")
    ] = False
    writable: Annotated[
        _Pairs, typer.Option(metavar="DIRECTORY", help="A directory that it may change.")
    ] = None
    tools: Annotated[
        _Pairs, typer.Option(metavar="PATTERN", help="Use only tools like this; repeatable.")
    ] = None
    timeout: Annotated[float, typer.Option(help="Seconds for each request.")] = 60.0


@mcp.command("add")
@with_option_groups
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
    values: dict[str, object] = {
        "command": (command or [""])[0],
        "args": (command or [])[1:],
        "url": options.url,
        "env": _pairs("--env", options.env),
        "headers": _pairs("--header", options.header),
        "network": options.network,
        "sandbox": not options.no_sandbox,
        "writable": [str(Path(path).expanduser().absolute()) for path in options.writable or []],
        "tools": options.tools or [],
        "timeout": options.timeout,
    }
    _add(name, values, options.secret or [], keyring=options.keyring)


def _add(name: str, values: Mapping[str, object], secrets: list[str], *, keyring: bool) -> None:
    paths, store = _user()
    if name in [server.name for server in store.all()]:
        raise UsageError(f"There is a server {name} already; remove it first.")
    place = "keyring" if keyring else "file"
    settings = {**values, "secrets": dict.fromkeys(secrets, place)}
    server = make_server(name, settings, Origin.USER, store.path)
    for secret in secrets:
        server_secrets(paths).save(name, secret, _read(f"{secret}: "), place)
    store.save(server)
    _tell(f"The server {name} is added. `shepherd mcp test {name}` tries it.")


@mcp.command("list")
def list_servers() -> None:
    """List the servers of the user and of this project."""
    from shepherd.cli.commands.mcp_view import summaries

    paths = Paths.from_env(os.environ)
    lines = summaries(paths, Path.cwd(), _tell)
    for line in lines:
        _show(line)
    if not lines:
        _tell("There are no servers; `shepherd mcp add NAME -- PROGRAM` adds one.")


@mcp.command("show")
def show(name: Name) -> None:
    """Show the settings of a server; never a secret."""
    from shepherd.cli.commands.mcp_view import details

    for key, text in details(Paths.from_env(os.environ), Path.cwd(), name):
        _show(f"{key:<10} {text}")


@mcp.command("test")
def test(context: typer.Context, name: Name) -> None:
    """Start a server, and list what it offers."""
    from shepherd.cli.commands.mcp_view import probe  # imports the SDK

    overrides = cast(Mapping[str, object], context.obj)
    config = load_settings(Path.cwd(), os.environ, overrides)
    raise typer.Exit(asyncio.run(probe(config, Path.cwd(), name, _show)))


@mcp.command("remove")
def remove(name: Name) -> None:
    """Remove a server and its secrets."""
    paths, store = _user()
    forget_secrets(paths, store.remove(name))
    _tell(f"The server {name} is removed.")


@mcp.command("secret")
def secret(
    name: Name,
    variable: Annotated[str, typer.Argument(help="The secret's name.")],
    *,
    keyring: Keyring = False,
) -> None:
    """Store a secret of a server, which is asked for."""
    paths, store = _user()
    server = store.get(name)
    place = "keyring" if keyring else "file"
    settings = server.definition.model_dump(exclude_defaults=True)
    settings["secrets"] = {**server.definition.secrets, variable: place}
    changed = make_server(name, settings, Origin.USER, store.path)
    server_secrets(paths).save(name, variable, _read(f"{variable}: "), place)
    store.save(changed)
    _tell(f"{variable} of the server {name} is stored.")


@mcp.command("accept")
def accept(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Accept a server of this project, exactly as its file defines it now."""
    paths = Paths.from_env(os.environ)
    server = find_server(paths, Path.cwd(), name)
    if server.origin is Origin.USER:
        raise UsageError(f"{name} is your own server; it needs no consent.")
    _show(description(server))
    if not yes:
        typer.confirm("Start it from now on?", abort=True)
    Consents(AcceptanceStore(paths.accepted_file)).add(server)
    _tell(f"The server {name} is accepted.")


@mcp.command("login")
def login(name: Name) -> None:
    """Log in to a server that speaks HTTP, in your browser (OAuth)."""
    from shepherd.mcp.login import Login  # imports the SDK

    paths = Paths.from_env(os.environ)
    server = find_server(paths, Path.cwd(), name)
    if not server.definition.url:
        raise UsageError(f"{name} is a program; only servers with a url have a login.")
    if server.origin is Origin.PROJECT:
        accept(name)

    def show(url: str) -> None:
        _tell(f"Open this address in your browser:\n{url}")

    count = asyncio.run(Login(server, server_secrets(paths)).run(show))
    _tell(f"You are logged in to {name}; it offers {count} tools.")


def _user() -> "tuple[Paths, ServerStore]":
    paths = Paths.from_env(os.environ)
    return paths, ServerStore(paths.mcp_file)


def _pairs(option: str, texts: _Pairs) -> dict[str, str]:
    result: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {name}: write {option} NAME=VALUE")
        result[name.strip()] = value
    return result


def _read(question: str) -> str:
    return read_key(question)


def _show(text: str) -> None:
    sys.stdout.write(f"{sanitize(text)}\n")
    sys.stdout.flush()


def _tell(text: str) -> None:
    sys.stderr.write(f"{sanitize(text)}\n")


@mcp.command("serve")
def serve(
    context: typer.Context,
    *,
    tools: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Only these tools, with commas between them; `ask` is the model.",
        ),
    ] = None,
) -> None:
    """Serve Shepherd's tools, and `ask` for its model, to another agent on stdin and stdout.

    Rules, sandbox and settings are those of the directory. Calls that need approval are shown to
    the other agent's user, or denied if it can't show them.
    """
    from shepherd.cli.mcpserver.server import McpService, serve_stdio  # imports the SDK

    overrides = cast(Mapping[str, object], context.obj)

    def read(directory: Path) -> Config:
        return model_of_flags(load_settings(directory, os.environ, overrides))

    service = McpService(read, Path.cwd().resolve(), _names(tools))
    raise typer.Exit(asyncio.run(ended_by_signals(serve_stdio(service))))


def _names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError("--tools is empty; write names with commas between them.")
    return names
