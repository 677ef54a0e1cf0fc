"""`shepherd permissions`: the rules that you or the project have set."""

import os
from pathlib import Path
from typing import Annotated

import typer

from shepherd.cli.commands import output
from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.conversation.commands.present import REMOVE, permission_lines
from shepherd.conversation.toolbox import build_policy

permissions = typer.Typer(
    name="permissions",
    help="The rules that you or the project have set; defaults are not listed.",
    no_args_is_help=True,
)


@permissions.command("list")
def list_rules() -> None:
    """List the rules in force here, each with its source; numbered ones can be removed."""
    _show("")


@permissions.command(REMOVE)
def remove_rule(
    number: Annotated[int, typer.Argument(help="As `list` shows it.")],
) -> None:
    """Remove a kept rule."""
    _show(f"{REMOVE} {number}")


def _show(argument: str) -> None:
    config = load_config(Path.cwd(), os.environ)
    policy = build_policy(config, Paths.from_env(os.environ), Path.cwd())
    for line in permission_lines(policy, argument):
        output.show(str(line))
