"""`shepherd hooks`: the hooks here, and the user's consent to those of a project."""

import os
from pathlib import Path

import typer

from shepherd.cli.commands import arguments, output
from shepherd.config.acceptance import AcceptanceStore
from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.errors import UsageError
from shepherd.hooks import ProjectHooks, description, load_project_hooks

hooks = typer.Typer(
    name="hooks", help="The hooks of a project, and your consent to them.", no_args_is_help=True
)


@hooks.command("list")
def list_hooks() -> None:
    """List the hooks of your settings and of this project."""
    paths = Paths.from_env(os.environ)
    own = description(load_config(Path.cwd(), os.environ).hooks)
    if own:
        output.show(f"{paths.user_file}:\n{own}")
    project = load_project_hooks(Path.cwd())
    if project is not None:
        accepted = AcceptanceStore(paths.accepted_file).is_accepted(project.proposal)
        state = "accepted" if accepted else "not accepted, they do not run"
        output.show(f"{project.file} ({state}):\n{description(project.section)}")


@hooks.command("accept")
def accept_hooks(yes: arguments.Yes = False) -> None:
    """Let the hooks of this project run, exactly as its file has them now."""
    project = _project_hooks()
    output.show(f"{project.file}:\n{description(project.section)}")
    if not yes:
        typer.confirm("Run them from now on, outside the sandbox?", abort=True)
    store = AcceptanceStore(Paths.from_env(os.environ).accepted_file)
    store.accept(project.proposal, f"hooks in {project.file}")
    output.note("The hooks are accepted. A change of the file needs another consent.")


@hooks.command("withdraw")
def withdraw_hooks() -> None:
    """Stop running the hooks of this project."""
    project = _project_hooks()
    AcceptanceStore(Paths.from_env(os.environ).accepted_file).withdraw(project.proposal)
    output.note("The hooks do not run any more.")


def _project_hooks() -> ProjectHooks:
    """The hooks of this project; raises UsageError if it has none."""
    project = load_project_hooks(Path.cwd())
    if project is None:
        raise UsageError("This project has no .shepherd/hooks.toml.")
    return project
