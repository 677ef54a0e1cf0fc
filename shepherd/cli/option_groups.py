"""The options of `shepherd` itself, one group for each panel of its help."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from msgspec import Struct

from shepherd.cli.commands.arguments import FieldOption, FieldOptions
from shepherd.config.settings import find_field
from shepherd.version import __version__

ADDRESS = (
    FieldOption("server.host", "Address to listen on."),
    FieldOption("server.port", "Port; 0 = any free one."),
    FieldOption("server.auth_mode", "none, or json: keys of `shepherd apikey`."),
)
"""The options that all servers have."""

INSECURE = "Insist on listening beyond this machine without authentication."


def _show_version(value: bool) -> None:  # noqa: FBT001 - Typer calls it by position
    if value:
        typer.echo(f"shepherd {__version__}")
        raise typer.Exit


class ModelOptions(Struct, frozen=True, kw_only=True):
    """The options for the model."""

    panel: ClassVar = "Model"

    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME", help="Model by name or path.")
    ] = None
    fit: Annotated[
        bool, typer.Option("--fit", help="Show how the model would be loaded, and end.")
    ] = False
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider", "-p", metavar="NAME[/MODEL]", help="Provider that answers; local = none."
        ),
    ] = None
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="TYPE",
            help="Provider for this run alone, of this type, with --model.",
        ),
    ] = None
    api_base: Annotated[str | None, typer.Option(metavar="URL", help="Its address.")] = None
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Its key; - asks for it or reads stdin.")
    ] = None
    settings: Annotated[
        Mapping[str, object],
        FieldOptions(
            find_field,
            FieldOption("model.system_message", "System message.", "--system"),
            FieldOption(
                "model.thinking",
                "Let the model reason before it answers.",
                "--thinking/--no-thinking",
            ),
            FieldOption("model.tools", "Offer no tools.", "--notools", off=True),
            FieldOption("llamacpp.context_size", "Tokens of context; 0 = the model's own."),
            FieldOption("llamacpp.gpu_layers", "Layers on the GPU; -1 = all."),
            FieldOption(
                "llamacpp.rpc_servers",
                "RPC workers that compute parts of the model; may be repeated.",
                "--rpc",
                "HOST:PORT,...",
            ),
            FieldOption("model.max_tokens", "Longest answer in tokens; 0 = what fits."),
            FieldOption("sampling.temperature", "Randomness; 0 = none."),
            FieldOption("sampling.seed", "Random seed."),
        ),
    ]


class ConversationOptions(Struct, frozen=True, kw_only=True):
    """The options for the prompt, the session, and the permissions of tools."""

    panel: ClassVar = "Conversation"

    execute: Annotated[
        str | None,
        typer.Option(
            "--execute",
            "-e",
            metavar="QUESTION",
            help="Answer one question and end; piped input is its context.",
        ),
    ] = None
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="With --execute and --approve review: make the changes, besides printing them.",
        ),
    ] = False
    images: Annotated[
        list[Path] | None,
        typer.Option(
            "--image", metavar="FILE", help="Image that goes with the question; may be repeated."
        ),
    ] = None
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines in and out.")] = False
    latest: Annotated[
        bool,
        typer.Option("--continue", "-c", help="Go on with the latest session of this directory."),
    ] = False
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            "-r",
            metavar="ID",
            help="Go on with a session; the start of its id is enough.",
        ),
    ] = None
    branch: Annotated[
        bool,
        typer.Option("--branch", help="Go on with a copy; the session stays as it is."),
    ] = False
    connect: Annotated[
        str | None,
        typer.Option(
            "--connect",
            metavar="URL",
            help="Talk in the conversation of a --cliserver; --api-key is its key.",
        ),
    ] = None
    settings: Annotated[
        Mapping[str, object],
        FieldOptions(
            find_field,
            FieldOption(
                "permissions.approve",
                "What needs approval: ask, edits here run, auto: commands in the sandbox too, "
                "all runs, none.",
            ),
            FieldOption(
                "tools.sandbox",
                "Run commands in the strongest sandbox here (auto), only in one (required), off.",
            ),
            FieldOption(
                "knowledge.enabled",
                "Read AGENTS.md, skills and commands of the user and of the project.",
                "--knowledge/--no-knowledge",
            ),
        ),
    ]


class ServerOptions(Struct, frozen=True, kw_only=True):
    """The options for servers."""

    panel: ClassVar = "Server"

    server: Annotated[bool, typer.Option("--server", help="Serve HTTP.")] = False
    cliserver: Annotated[
        bool, typer.Option("--cliserver", help="Serve one conversation that many clients share.")
    ] = False
    settings: Annotated[
        Mapping[str, object],
        FieldOptions(
            find_field,
            *ADDRESS,
            FieldOption("server.socket", "Unix socket to listen on.", is_path=True),
            FieldOption("server.tls_cert", "Certificate, for HTTPS.", is_path=True),
            FieldOption("server.tls_key", "Its private key.", is_path=True),
            FieldOption(
                "server.tls_password_file", "File with the password of the key.", is_path=True
            ),
            FieldOption("server.tools", "Serve the tools at /v1/tools.", "--server-tools"),
            FieldOption(
                "server.use_tools",
                "Answer as an agent, with tools that the server runs.",
                "--use-tools",
            ),
            FieldOption(
                "server.tool_rounds", "Maximum generations of one answer with --use-tools."
            ),
            FieldOption("server.log_format", "Lines of the log: text, or json."),
        ),
    ]
    insecure: Annotated[bool, typer.Option("--insecure", help=INSECURE)] = False


class RunOptions(Struct, frozen=True, kw_only=True):
    """Options for any setting, and for the program itself."""

    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SECTION.KEY=VALUE", help="Any setting for this run; may be repeated."
        ),
    ] = None
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with errors.")] = False
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False
