"""`shepherd hooks`: the hooks here, and the user's consent to those of a project."""

import os
from pathlib import Path
from typing import Annotated

import typer

from shepherd.cli.commands.output import note
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.config.paths import Paths
from shepherd.errors import UsageError

hooks = typer.Typer(
    name="hooks", help="The hooks of a project, and your consent to them.", no_args_is_help=True
)


@hooks.command("list")
def list_hooks() -> None:
    """List the hooks of your settings and of this project."""
    from shepherd.config.acceptance import AcceptanceStore
    from shepherd.config.load import load_config
    from shepherd.hooks import description, load_project_hooks

    paths = Paths.from_env(os.environ)
    own = description(load_config(Path.cwd(), os.environ).hooks)
    if own:
        typer.echo(f"{paths.user_file}:\n{sanitize(own)}")
    project = load_project_hooks(Path.cwd())
    if project is not None:
        accepted = AcceptanceStore(paths.accepted_file).is_accepted(project.proposal)
        state = "accepted" if accepted else "not accepted, they do not run"
        typer.echo(f"{sanitize(str(project.file))} ({state}):")
        typer.echo(sanitize(description(project.section)))


@hooks.command("accept")
def accept_hooks(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let the hooks of this project run, exactly as its file has them now."""
    from shepherd.config.acceptance import AcceptanceStore
    from shepherd.hooks import description, load_project_hooks

    project = load_project_hooks(Path.cwd())
    if project is None:
        raise UsageError("This project has no .shepherd/hooks.toml.")
    typer.echo(f"{sanitize(str(project.file))}:\n{sanitize(description(project.section))}")
    if not yes:
        typer.confirm("Run them from now on, outside the sandbox?", abort=True)
    store = AcceptanceStore(Paths.from_env(os.environ).accepted_file)
    store.accept(project.proposal, f"hooks in {project.file}")
    note("The hooks are accepted. A change of the file needs another consent.")


@hooks.command("withdraw")
def withdraw_hooks() -> None:
    """Stop running the hooks of this project."""
    from shepherd.config.acceptance import AcceptanceStore
    from shepherd.hooks import load_project_hooks

    project = load_project_hooks(Path.cwd())
    if project is None:
        raise UsageError("This project has no .shepherd/hooks.toml.")
    AcceptanceStore(Paths.from_env(os.environ).accepted_file).withdraw(project.proposal)
    note("The hooks do not run any more.")
