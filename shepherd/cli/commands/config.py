"""`shepherd config`: shows settings with their sources, and changes them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from shepherd.cli.commands import arguments, output
from shepherd.cli.request import check_overrides, loaded_config
from shepherd.config.load import default_of, show_config, show_value
from shepherd.config.paths import Paths, project_file
from shepherd.config.settings import Config, find_field, first_name, parse_text, unknown_key
from shepherd.errors import UsageError

config = typer.Typer(name="config", help="Settings and where they come from.", no_args_is_help=True)
Key = Annotated[str, typer.Argument(metavar="SECTION.KEY", help="The setting.")]


@config.command("show")
def show(
    context: typer.Context,
    section: Annotated[str, typer.Argument(help="Only this section.")] = "",
) -> None:
    """Show all settings that apply here, as TOML, each with its source."""
    loaded = loaded_config(context)
    if section and section not in Config.model_fields:
        raise UsageError(f"unknown section {section}; there are {', '.join(Config.model_fields)}")
    typer.echo(show_config(loaded, [section] if section else list(Config.model_fields)))


@config.command("get")
def get(context: typer.Context, key: Key) -> None:
    """Show the value of one setting, or its default."""
    key = _setting_name(key)
    value = loaded_config(context).value(key)
    if value is None:
        value = default_of(*key.split("."))
    typer.echo(value if isinstance(value, str) else show_value(value))


@config.command("set", cls=arguments.ValueCommand)
def set_(
    key: Key, value: Annotated[str, typer.Argument(help="The value; lists as in TOML.")]
) -> None:
    """Change a setting in your own file; its comments stay."""
    from shepherd.config.edit import set_value  # loads tomlkit

    key = _setting_name(key)
    path = Paths.from_env(os.environ).user_file
    parsed = parse_text(key, value)
    check_overrides({key: parsed})  # a wrong value must not come into the file
    problems = set_value(path, key, parsed)
    _report(f"{key} is set in {path}.", problems)


@config.command("unset")
def unset(key: Key) -> None:
    """Remove a setting, or an unknown key, from your own file."""
    from shepherd.config.edit import unset_value  # loads tomlkit

    key = first_name(key)
    path = Paths.from_env(os.environ).user_file
    was_set, problems = unset_value(path, key)
    if not was_set:
        _setting_name(key)  # raises UsageError for a key that is mistyped
    _report(f"{key} is {'no longer' if was_set else 'not'} set in {path}.", problems)


@config.command("path")
def path() -> None:
    """Show the files and directories that Shepherd uses here."""
    paths = Paths.from_env(os.environ)
    project = project_file(Path.cwd())
    entries = {
        "settings": paths.user_file,
        "project": project or "(none)",
        "permissions": paths.permissions_file,
        "providers": paths.providers_file,
        "credentials": paths.credentials_file,
        "facts": paths.models_file,
        "keys": paths.keys_file,
        "sessions": paths.sessions,
        "memory": paths.memory_file,
        "models": paths.models,
        "spill": paths.spill,
    }
    for name, place in entries.items():
        typer.echo(f"{name:<12} {place}")


def _report(result: str, problems: str) -> None:
    """Show what was done, and what else is wrong in the file."""
    output.note(result)
    if problems:
        output.warn(f"the file has other problems:\n{problems}")


def _setting_name(name: str) -> str:
    """The current name of a setting, which may have an old one; raises UsageError."""
    key = first_name(name)
    if find_field(key) is None:
        raise UsageError(unknown_key(name))
    return key
