"""The options of `shepherd` and its commands, with Typer."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command, get_group

from shepherd.cli.commands.arguments import PlainErrors, with_option_groups
from shepherd.cli.frontend import start_frontend
from shepherd.cli.option_groups import ConversationOptions, ModelOptions, RunOptions, ServerOptions
from shepherd.cli.request import PROVIDER, FrontendChoice, check_overrides
from shepherd.cli.terminal.secrets import STDIN, read_key
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import Ephemeral
from shepherd.config.settings import first_name, parse_text
from shepherd.conversation import model_choice, session_start
from shepherd.errors import ConfigError, UsageError

_MODULES: Mapping[str, str] = {
    "launch": "launch.launch",
    "acp": "acp",
    "doctor": "doctor",
    "usage": "apikey",
    "rpc-worker": "rpc_worker",
    "provider": "providers.options",
    "model": "model",
    "config": "config",
    "mcp": "mcp",
    "sessions": "sessions",
    "undo": "undo",
    "memory": "memory",
    "hooks": "hooks",
    "permissions": "permissions",
    "schedule": "schedule",
    "apikey": "apikey",
    "database": "database",
    "ctl": "ctl",
    "deploy": "deploy",
}
"""The commands in the order of the help, and the modules that define them.

A definition is a function, or the `Typer` of a group, and has the command's name.
"""


class AllCommands(PlainErrors):
    """The group of all commands; one is imported when it is read for the first time."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(_MODULES)  # names alone, for the help and for guesses

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, None if there is none."""
        return _build(cmd_name) if cmd_name in _MODULES else None


@cache
def _build(name: str) -> Any:
    """Import a command; Typer makes one only as a member of a group, which is then left out."""
    module = import_module(f"shepherd.cli.commands.{_MODULES[name]}")
    definition: typer.Typer | Callable[..., None] = getattr(module, name.replace("-", "_"))
    parent = typer.Typer(pretty_exceptions_enable=False)
    if isinstance(definition, typer.Typer):
        finish = getattr(module, "do_in_shell", None)  # gets what the group's commands return
        parent.add_typer(definition, name=name, result_callback=finish)
    else:
        parent.command(name)(definition)
    return get_group(parent).commands[name]


HELP = """An agent in your terminal, with its own model; the same stack as an HTTP server.

Without options: the interactive prompt."""


app = typer.Typer(
    name="shepherd",
    cls=AllCommands,
    help=HELP,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run_command_line(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`.

    Raises ShepherdError; SystemExit after help, usage errors and frontends.
    """
    get_command(app).main(list(arguments), prog_name="shepherd")
    return 0


@app.callback()
@with_option_groups
def _main(
    context: typer.Context,
    model: ModelOptions,
    conversation: ConversationOptions,
    server: ServerOptions,
    run: RunOptions,
) -> None:
    """Start a frontend, or leave its options to the command that follows them."""
    provider = _provider_of_run(model, conversation)
    context.obj = overrides = _overrides(provider, model, conversation, server, run)
    context.meta[PROVIDER] = provider
    if context.invoked_subcommand is None:  # else they are for a command, which runs next
        _check_not_blank("--resume", conversation.resume, "`shepherd sessions list` shows the ids")
        _check_not_blank("--execute", conversation.execute, "write the question behind it")
        _check_not_blank("--connect", conversation.connect, "write the server's URL behind it")
        request = FrontendChoice(
            overrides,
            conversation.execute,
            conversation.json_lines,
            session_start.SessionStart(
                conversation.latest, conversation.resume or "", branch=conversation.branch
            ),
            server.server,
            server.insecure,
            provider,
            cliserver=server.cliserver,
            connect=conversation.connect or "",
            api_key=model.api_key or "",
            images=conversation.images or (),
            apply=conversation.apply,
            fit=model.fit,
        )
        _check(request)
        raise typer.Exit(start_frontend(request))


def _provider_of_run(model: ModelOptions, conversation: ConversationOptions) -> Ephemeral | None:
    """The provider of `--backend`, None without it; its name is its type.

    With `--connect`, `--api-key` is for the server instead. Raises UsageError.
    """
    key = None if conversation.connect else model.api_key
    backend = model.backend
    if backend is None:
        if model.api_base is not None or key is not None:
            raise UsageError("--api-base and --api-key belong to --backend TYPE.")
        return None
    name = _local_name(model) if backend == "llamacpp" else model.model
    values = {"type": backend, "base_url": model.api_base or "", "model": name or ""}
    if key == STDIN:
        key = read_key("Key: ")
    try:
        return Ephemeral(make_provider(backend, values), key or "")
    except ConfigError as error:
        raise UsageError(f"--backend: {error}") from error


def _model_settings(model: ModelOptions, provider: Ephemeral | None) -> Mapping[str, object]:
    """The settings by which `--provider`, `--backend` and `--model` choose the model."""
    if provider is None:
        return model_choice.override_model(model.provider, _local_name(model))
    if model.provider is not None:
        raise UsageError("--backend describes a provider; --provider names another one.")
    return {"model.provider": provider.provider.name}  # its model is the one of `--model`


def _overrides(
    provider: Ephemeral | None,
    model: ModelOptions,
    conversation: ConversationOptions,
    server: ServerOptions,
    run: RunOptions,
) -> dict[str, object]:
    """The settings of the options; raises UsageError for a wrong value."""
    overrides: dict[str, object] = {
        **_model_settings(model, provider),
        **model.settings,
        **conversation.settings,
        **server.settings,
    }
    overrides |= map(_parse_setting, run.settings or [])
    check_overrides(overrides)
    return overrides


def _parse_setting(text: str) -> tuple[str, object]:
    """The key and the value of `--set SECTION.KEY=VALUE`; raises UsageError."""
    name, equals, value = text.partition("=")
    key = first_name(name)
    if not equals:
        raise UsageError(f"--set {text}: write --set SECTION.KEY=VALUE")
    try:
        return key, parse_text(key, value)
    except ConfigError as error:
        raise UsageError(f"--set {text}: {error}") from error


def _local_name(model: ModelOptions) -> str | None:
    """The value of `--model` as a setting: the absolute path if it is a path of a file."""
    return None if model.model is None else model_choice.model_from_user(model.model, Path.cwd())


def _check_not_blank(option: str, text: str | None, advice: str) -> None:
    """Raise UsageError for an option that has an empty value."""
    if text is not None and not text.strip():
        raise UsageError(f"{option} is empty; {advice}.")


def _check(request: FrontendChoice) -> None:
    """Raise UsageError if options exclude each other."""
    start = request.start
    talks = request.prompt is not None or request.json_lines or start.latest or start.id
    if request.server and talks:
        raise UsageError("--server goes with none of --execute, --json, --continue, --resume.")
    if start.latest and start.id:
        raise UsageError("--continue and --resume exclude each other.")
    if start.branch and not (start.latest or start.id):
        raise UsageError("--branch goes with --continue or --resume.")
    if request.images and (request.server or request.cliserver or request.json_lines):
        raise UsageError("--image goes with none of --server, --cliserver, --json.")
    if request.apply and (request.prompt is None or request.connect):
        raise UsageError("--apply belongs to --execute with --approve review.")
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
