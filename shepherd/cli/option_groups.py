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


def _show_version(requested: object) -> None:
    if requested:
        typer.echo(f"shepherd {__version__}")
        raise typer.Exit


class ModelOptions(Struct, frozen=True, kw_only=True):
    """The options for the model."""

    panel: ClassVar = "Model"

    model: Annotated[str | None, typer.Option("--model", "-m", metavar="NAME")] = None
    """Model by name or path."""
    fit: bool = False
    """Show how the model would be loaded, and end."""
    provider: Annotated[str | None, typer.Option("--provider", "-p", metavar="NAME[/MODEL]")] = None
    """Provider that answers; local = none."""
    backend: Annotated[str | None, typer.Option(metavar="TYPE")] = None
    """Provider for this run alone, of this type, with --model."""
    api_base: Annotated[str | None, typer.Option(metavar="URL")] = None
    """Its address."""
    api_key: Annotated[str | None, typer.Option(metavar="KEY")] = None
    """Its key; - asks for it or reads stdin."""
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

    execute: Annotated[str | None, typer.Option("--execute", "-e", metavar="QUESTION")] = None
    """Answer one question and end; piped input is its context."""
    apply: bool = False
    """With --execute and --approve review: make the changes, besides printing them."""
    images: Annotated[list[Path] | None, typer.Option("--image", metavar="FILE")] = None
    """Image that goes with the question; may be repeated."""
    json_lines: Annotated[bool, typer.Option("--json")] = False
    """JSON lines in and out."""
    latest: Annotated[bool, typer.Option("--continue", "-c")] = False
    """Go on with the latest session of this directory."""
    resume: Annotated[str | None, typer.Option("--resume", "-r", metavar="ID")] = None
    """Go on with a session; the start of its id is enough."""
    branch: bool = False
    """Go on with a copy; the session stays as it is."""
    connect: Annotated[str | None, typer.Option(metavar="URL")] = None
    """Talk in the conversation of a --cliserver; --api-key is its key."""
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

    server: bool = False
    """Serve HTTP."""
    cliserver: bool = False
    """Serve one conversation that many clients share."""
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
    insecure: bool = False
    """Insist on listening beyond this machine without authentication."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """Options for any setting, and for the program itself."""

    settings: Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE")] = None
    """Any setting for this run; may be repeated."""
    debug: bool = False
    """Show a traceback with errors."""
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True)
    ] = False
    """Show the version."""
