"""The options of `shepherd` itself, one group for each panel of its help."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shepherd.config.choices import ApproveMode, AuthMode, LogFormat, SandboxMode
from shepherd.version import __version__

MODEL, CONVERSATION, SERVER = "Model", "Conversation", "Server"


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _show_version(value: bool) -> None:  # noqa: FBT001 - Typer calls it by position
    if value:
        typer.echo(f"shepherd {__version__}")
        raise typer.Exit


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options for the model."""

    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Model by name or path.", rich_help_panel=MODEL),
    ] = None
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            "-p",
            metavar="NAME[/MODEL]",
            help="Provider that answers; local = none.",
            rich_help_panel=MODEL,
        ),
    ] = None
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="TYPE",
            help="Provider for this run alone, of this type, with --model.",
            rich_help_panel=MODEL,
        ),
    ] = None
    api_base: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Its address.", rich_help_panel=MODEL),
    ] = None
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Its key; - asks for it or reads stdin.", rich_help_panel=MODEL
        ),
    ] = None
    system: Annotated[
        str | None, typer.Option("--system", help="System message.", rich_help_panel=MODEL)
    ] = None
    thinking: Annotated[
        bool | None,
        typer.Option(
            "--thinking/--no-thinking",
            help="Let the model reason before it answers.",
            rich_help_panel=MODEL,
        ),
    ] = None
    notools: Annotated[
        bool, typer.Option("--notools", help="Offer no tools.", rich_help_panel=MODEL)
    ] = False
    context_size: Annotated[
        int | None,
        typer.Option(help="Tokens of context; 0 = the model's own.", rich_help_panel=MODEL),
    ] = None
    gpu_layers: Annotated[
        int | None, typer.Option(help="Layers on the GPU; -1 = all.", rich_help_panel=MODEL)
    ] = None
    rpc: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT,...",
            help="RPC workers that compute parts of the model; may be repeated.",
            rich_help_panel=MODEL,
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Longest answer in tokens; 0 = what fits.", rich_help_panel=MODEL),
    ] = None
    temperature: Annotated[
        float | None, typer.Option(help="Randomness; 0 = none.", rich_help_panel=MODEL)
    ] = None
    seed: Annotated[int | None, typer.Option(help="Random seed.", rich_help_panel=MODEL)] = None

    @property
    def values(self) -> Mapping[str, object]:
        """The settings of the options; None for an absent option."""
        return {
            "model.system_message": self.system,
            "model.thinking": self.thinking,
            "model.tools": False if self.notools else None,
            "model.max_tokens": self.max_tokens,
            "llamacpp.context_size": self.context_size,
            "llamacpp.gpu_layers": self.gpu_layers,
            "llamacpp.rpc_servers": ",".join(self.rpc).split(",") if self.rpc else None,
            "sampling.temperature": self.temperature,
            "sampling.seed": self.seed,
        }


@dataclass(frozen=True, kw_only=True)
class ConversationOptions:
    """The options for the prompt, the session, and the permissions of tools."""

    execute: Annotated[
        str | None,
        typer.Option(
            "--execute",
            "-e",
            metavar="QUESTION",
            help="Answer one question and end; piped input is its context.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None
    images: Annotated[
        list[Path] | None,
        typer.Option(
            "--image",
            metavar="FILE",
            help="Image that goes with the question; may be repeated.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None
    json_lines: Annotated[
        bool,
        typer.Option("--json", help="JSON lines in and out.", rich_help_panel=CONVERSATION),
    ] = False
    latest: Annotated[
        bool,
        typer.Option(
            "--continue",
            "-c",
            help="Go on with the latest session of this directory.",
            rich_help_panel=CONVERSATION,
        ),
    ] = False
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            "-r",
            metavar="ID",
            help="Go on with a session; the start of its id is enough.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None
    connect: Annotated[
        str | None,
        typer.Option(
            "--connect",
            metavar="URL",
            help="Talk in the conversation of a --cliserver; --api-key is its key.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None
    approve: Annotated[
        ApproveMode | None,
        typer.Option(
            help="What needs approval: ask, edits here run, auto: commands in the sandbox too, all "
            "runs, none.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None
    sandbox: Annotated[
        SandboxMode | None,
        typer.Option(
            help="Run commands in the strongest sandbox here (auto), only in one (required), off.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None

    knowledge: Annotated[
        bool | None,
        typer.Option(
            "--knowledge/--no-knowledge",
            help="Read AGENTS.md, skills and commands of the user and of the project.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None

    @property
    def values(self) -> Mapping[str, object]:
        """The settings of the options; None for an absent option."""
        return {
            "permissions.approve": self.approve,
            "tools.sandbox": self.sandbox,
            "knowledge.enabled": self.knowledge,
        }


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options for servers."""

    server: Annotated[
        bool, typer.Option("--server", help="Serve HTTP.", rich_help_panel=SERVER)
    ] = False
    cliserver: Annotated[
        bool,
        typer.Option(
            "--cliserver",
            help="Serve one conversation that many clients share.",
            rich_help_panel=SERVER,
        ),
    ] = False
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", rich_help_panel=SERVER)
    ] = None
    port: Annotated[
        int | None, typer.Option(help="Port; 0 = any free one.", rich_help_panel=SERVER)
    ] = None
    socket: Annotated[
        Path | None,
        typer.Option(help="Unix socket to listen on.", rich_help_panel=SERVER),
    ] = None
    tls_cert: Annotated[
        Path | None,
        typer.Option(help="Certificate, for HTTPS.", rich_help_panel=SERVER),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(help="Its private key.", rich_help_panel=SERVER),
    ] = None
    tls_password_file: Annotated[
        Path | None,
        typer.Option(help="File with the password of the key.", rich_help_panel=SERVER),
    ] = None
    auth_mode: Annotated[
        AuthMode | None,
        typer.Option(help="none, or json: keys of `shepherd apikey`.", rich_help_panel=SERVER),
    ] = None
    server_tools: Annotated[
        bool | None,
        typer.Option(
            "--server-tools", help="Serve the tools at /v1/tools.", rich_help_panel=SERVER
        ),
    ] = None
    use_tools: Annotated[
        bool | None,
        typer.Option(
            "--use-tools",
            help="Answer as an agent, with tools that the server runs.",
            rich_help_panel=SERVER,
        ),
    ] = None
    tool_rounds: Annotated[
        int | None,
        typer.Option(
            help="Maximum generations of one answer with --use-tools.", rich_help_panel=SERVER
        ),
    ] = None
    log_format: Annotated[
        LogFormat | None,
        typer.Option(help="Lines of the log: text, or json.", rich_help_panel=SERVER),
    ] = None
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Insist on listening beyond this machine without authentication.",
            rich_help_panel=SERVER,
        ),
    ] = False

    @property
    def values(self) -> Mapping[str, object]:
        """The settings of the options; None for an absent option."""
        return {
            "server.host": self.host,
            "server.port": self.port,
            "server.socket": _path(self.socket),
            "server.tls_cert": _path(self.tls_cert),
            "server.tls_key": _path(self.tls_key),
            "server.tls_password_file": _path(self.tls_password_file),
            "server.auth_mode": self.auth_mode,
            "server.tools": self.server_tools,
            "server.use_tools": self.use_tools,
            "server.tool_rounds": self.tool_rounds,
            "server.log_format": self.log_format,
        }


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options for any setting, and for the program itself."""

    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Any setting for this run; may be repeated.",
        ),
    ] = None
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with errors.")] = False
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False
