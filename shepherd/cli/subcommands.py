"""The commands of `shepherd`: each is imported when the command line names it."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.main import get_group

from shepherd.cli.commands.arguments import PlainErrors


class Place(NamedTuple):
    """The definition of a command: a function, or the `Typer` of a group.

    `finish` is the function that gets the results of the group's commands.
    """

    module: str
    name: str
    finish: str = ""


_PLACES: Mapping[str, Place] = {
    "acp": Place("acp", "acp"),
    "doctor": Place("doctor", "doctor"),
    "usage": Place("usage", "usage"),
    "rpc-worker": Place("rpc_worker", "rpc_worker"),
    "provider": Place("providers.options", "provider", "do_in_shell"),
    "model": Place("model", "model"),
    "config": Place("config", "config"),
    "mcp": Place("mcp", "mcp"),
    "sessions": Place("sessions", "sessions"),
    "memory": Place("memory", "memory"),
    "hooks": Place("hooks", "hooks"),
    "schedule": Place("schedule", "schedule"),
    "apikey": Place("apikey", "apikey"),
    "database": Place("database", "database"),
    "ctl": Place("ctl", "ctl"),
    "deploy": Place("deploy", "deploy"),
}
"""The commands in the order of the help."""


class AllCommands(PlainErrors):
    """The group of all commands; one is imported when it is read for the first time."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(_PLACES)  # names alone, for the help and for guesses

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, None if there is none."""
        return _build(cmd_name) if cmd_name in _PLACES else None


@cache
def _build(name: str) -> Any:
    place = _PLACES[name]
    module = import_module(f"shepherd.cli.commands.{place.module}")
    definition: typer.Typer | Callable[..., None] = getattr(module, place.name)
    parent = typer.Typer(pretty_exceptions_enable=False)
    if isinstance(definition, typer.Typer):
        finish = getattr(module, place.finish) if place.finish else None
        parent.add_typer(definition, name=name, result_callback=finish)
    else:
        parent.command(name)(definition)
    return get_group(parent).commands[name]
