"""The options of `shepherd` and its commands, with Typer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from shepherd.cli.commands.apikey import apikey
from shepherd.cli.commands.config import config
from shepherd.cli.commands.doctor import doctor
from shepherd.cli.commands.memory import memory
from shepherd.cli.commands.models.options import model as model_command
from shepherd.cli.commands.providers.options import do_in_shell
from shepherd.cli.commands.providers.options import provider as provider_commands
from shepherd.cli.commands.providers.parsing import given_provider, model_overrides
from shepherd.cli.commands.sessions import sessions
from shepherd.cli.request import Launch, SessionStart
from shepherd.cli.terminal.errors import UsageError
from shepherd.config.choices import ApproveMode, AuthMode, SandboxMode
from shepherd.config.fields import first_name, parse_text
from shepherd.config.layers import flag_layer
from shepherd.conversation.model_choice import model_from_user
from shepherd.errors import ConfigError
from shepherd.version import __version__

MODEL, CONVERSATION, SERVER = "Model", "Conversation", "Server"
HELP = """An agent in your terminal, with its own model; the same stack as an HTTP server.

Without options: the interactive prompt."""

app = typer.Typer(
    name="shepherd",
    help=HELP,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(provider_commands, result_callback=do_in_shell)
app.command("doctor")(doctor)
for _command in (model_command, config, sessions, memory, apikey):
    app.add_typer(_command)


def run_command_line(arguments: Sequence[str]) -> int:
    """Run what `arguments` ask for.

    Raises ShepherdError; SystemExit after help, usage errors and frontends that ended.
    """
    from typer.main import get_command

    get_command(app).main(list(arguments), prog_name="shepherd")
    return 0


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - Typer calls it by position
    if wanted:
        typer.echo(f"shepherd {__version__}")
        raise typer.Exit


@app.callback()
def _main(  # noqa: PLR0913 - each option is a parameter
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Model by name or path.", rich_help_panel=MODEL),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            "-p",
            metavar="NAME[/MODEL]",
            help="Provider that answers; local = none.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="TYPE",
            help="Provider for this run alone, of this type, with --model.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    api_base: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Its address.", rich_help_panel=MODEL),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Its key; - asks for it or reads stdin.", rich_help_panel=MODEL
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", help="System message.", rich_help_panel=MODEL)
    ] = None,
    thinking: Annotated[
        bool | None,
        typer.Option(
            "--thinking/--no-thinking",
            help="Let the model reason before it answers.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    notools: Annotated[
        bool, typer.Option("--notools", help="Offer no tools.", rich_help_panel=MODEL)
    ] = False,
    context_size: Annotated[
        int | None,
        typer.Option(help="Tokens of context; 0 = the model's own.", rich_help_panel=MODEL),
    ] = None,
    gpu_layers: Annotated[
        int | None, typer.Option(help="Layers on the GPU; -1 = all.", rich_help_panel=MODEL)
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Longest answer in tokens; 0 = what fits.", rich_help_panel=MODEL),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Randomness; 0 = none.", rich_help_panel=MODEL)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.", rich_help_panel=MODEL)] = None,
    execute: Annotated[
        str | None,
        typer.Option(
            "--execute",
            "-e",
            metavar="QUESTION",
            help="Answer one question and end; piped input is its context.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(
            "--image",
            metavar="FILE",
            help="Image that goes with the question; may be repeated.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option("--json", help="JSON lines in and out.", rich_help_panel=CONVERSATION),
    ] = False,
    latest: Annotated[
        bool,
        typer.Option(
            "--continue",
            "-c",
            help="Go on with the latest session of this directory.",
            rich_help_panel=CONVERSATION,
        ),
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            "-r",
            metavar="ID",
            help="Go on with a session; the start of its id is enough.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(
            "--connect",
            metavar="URL",
            help="Talk in the conversation of a --cliserver; --api-key is its key.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None,
    approve: Annotated[
        ApproveMode | None,
        typer.Option(
            help="What needs approval: ask, edits here run, auto: commands in the sandbox too, all "
            "runs, none.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None,
    sandbox: Annotated[
        SandboxMode | None,
        typer.Option(
            help="Run commands in the strongest sandbox here (auto), only in one (required), off.",
            rich_help_panel=CONVERSATION,
        ),
    ] = None,
    server: Annotated[
        bool, typer.Option("--server", help="Serve HTTP.", rich_help_panel=SERVER)
    ] = False,
    cliserver: Annotated[
        bool,
        typer.Option(
            "--cliserver",
            help="Serve one conversation that many clients share.",
            rich_help_panel=SERVER,
        ),
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", rich_help_panel=SERVER)
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 = any free one.", rich_help_panel=SERVER)
    ] = None,
    auth_mode: Annotated[
        AuthMode | None,
        typer.Option(help="none, or json: keys of `shepherd apikey`.", rich_help_panel=SERVER),
    ] = None,
    server_tools: Annotated[
        bool | None,
        typer.Option(
            "--server-tools", help="Serve the tools at /v1/tools.", rich_help_panel=SERVER
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Insist on listening beyond this machine without authentication.",
            rich_help_panel=SERVER,
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Any setting for this run; may be repeated.",
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with errors.")] = False,  # noqa: ARG001 - main reads it from the arguments
    version: Annotated[  # noqa: ARG001 - its callback does all
        bool,
        typer.Option(
            "--version", "-V", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    name = None if model is None else model_from_user(model, Path.cwd())
    given_key = None if connect else api_key
    temporary = given_provider(
        backend, api_base, given_key, name if backend == "llamacpp" else model
    )
    given = {
        **model_overrides(provider, temporary, name),
        "model.system_message": system,
        "model.thinking": thinking,
        "model.tools": False if notools else None,
        "model.max_tokens": max_tokens,
        "llamacpp.context_size": context_size,
        "llamacpp.gpu_layers": gpu_layers,
        "sampling.temperature": temperature,
        "sampling.seed": seed,
        "permissions.approve": approve,
        "tools.sandbox": sandbox,
        "server.host": host,
        "server.port": port,
        "server.auth_mode": auth_mode,
        "server.tools": server_tools,
    }
    overrides = {key: value for key, value in given.items() if value is not None}
    overrides |= dict(_setting(text) for text in settings or [])
    _check_values(overrides)
    context.obj = overrides
    if context.invoked_subcommand is None:
        _check_not_blank("--resume", resume, "`shepherd sessions list` shows the ids")
        _check_not_blank("--execute", execute, "write the question behind it")
        start = SessionStart(latest, resume or "")
        _check_not_blank("--connect", connect, "write the server's URL behind it")
        request = Launch(
            overrides,
            execute,
            json_lines,
            start,
            server,
            insecure,
            temporary,
            cliserver=cliserver,
            connect=connect or "",
            api_key=api_key or "",
            images=images or (),
        )
        _check(request)
        raise typer.Exit(_launch(request))


def _launch(request: Launch) -> int:
    from shepherd.cli.launch import launch  # loads the frontends' common parts

    return launch(request)


def _setting(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    key = first_name(name)
    if not equals:
        raise UsageError(f"--set {text}: write --set SECTION.KEY=VALUE")
    try:
        return key, parse_text(key, value)
    except ConfigError as error:
        raise UsageError(f"--set {text}: {error}") from error


def _check_values(overrides: Mapping[str, object]) -> None:
    try:
        flag_layer(overrides)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _check_not_blank(option: str, text: str | None, advice: str) -> None:
    if text is not None and not text.strip():
        raise UsageError(f"{option} is empty; {advice}.")


def _check(request: Launch) -> None:
    """Raise UsageError when options exclude each other."""
    start = request.start
    talks = request.prompt is not None or request.json_lines or start.latest or start.id
    if request.server and talks:
        raise UsageError("--server goes with none of --execute, --json, --continue, --resume.")
    if start.latest and start.id:
        raise UsageError("--continue and --resume exclude each other.")
    if request.images and (request.server or request.cliserver or request.json_lines):
        raise UsageError("--image goes with none of --server, --cliserver, --json.")
    if request.images and request.connect and request.prompt is None:
        raise UsageError("--image goes with --connect only if --execute asks a question.")
    if request.insecure and not (request.server or request.cliserver):
        raise UsageError("--insecure belongs to --server and --cliserver.")
    if request.cliserver and (request.server or request.prompt is not None or request.json_lines):
        raise UsageError("--cliserver goes with none of --server, --execute, --json.")
    elsewhere = request.server or request.cliserver or request.json_lines
    if request.connect and (elsewhere or start.latest or start.id):
        raise UsageError(
            "--connect goes with none of --server, --cliserver, --json, --continue, --resume."
        )
