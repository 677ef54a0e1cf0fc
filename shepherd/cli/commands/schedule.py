"""`shepherd schedule`: prompts that run at set times."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from shepherd.cli.commands import arguments, output
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.config import paths, section
from shepherd.errors import UsageError
from shepherd.schedule import jobs, timers

MAX_PIPED = 1_048_576
WIDTH = 60
_KEPT_VARIABLES = (
    *("PATH", "LANG", "LC_ALL"),
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"),
)
"""Variables of the shell in which a job is added; the job gets them too."""

schedule = typer.Typer(name="schedule", help="Prompts that run at set times.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The name of the job.")]


class JobOptions(Struct, frozen=True, kw_only=True):
    """The options of `schedule add`."""

    name: str = ""
    """The name of the job."""
    cwd: Path | None = None
    """The working directory, else this one."""
    model: str = ""
    """The model that answers."""
    approve: section.ApproveMode | None = None
    """What needs approval; without a user, that is denied."""
    timer: Annotated[str, typer.Option(metavar="TIMER")] = ""
    """systemd or cron; else the first that works here."""


@schedule.command("add")
@arguments.with_option_groups
def add_job(
    times: Annotated[
        str, typer.Argument(metavar="TIMES", help="Cron's five fields, as in '0 9 * * 1-5'.")
    ],
    prompt: Annotated[str, typer.Argument(help="What the model is to do; - reads it from stdin.")],
    options: JobOptions,
) -> None:
    """Run a prompt at set times."""
    expression, store = timers.parse_cron(times), _store()
    text = sys.stdin.read(MAX_PIPED + 1) if prompt == "-" else prompt
    if not text.strip():
        raise UsageError("The prompt is empty.")
    if options.timer not in ("", "systemd", "cron"):
        raise UsageError("--timer must be systemd or cron.")
    if options.name:
        jobs.check_name(options.name)
    directory = (options.cwd or Path()).resolve()
    if not directory.is_dir():
        raise UsageError(f"--cwd: {directory} is not a directory.")
    name = options.name or jobs.name_for(text, store.names())
    chosen = timers.choose_timer(options.timer, _units())
    environment = {key: os.environ[key] for key in _KEPT_VARIABLES if os.environ.get(key)}
    command = timers.JobCommand([*jobs.program(), "schedule", "run", name], environment)
    job = jobs.Job(
        name=name,
        cron=expression.text,
        cwd=str(directory),
        timer=chosen.name,
        model=options.model,
        approve=options.approve,
        environment=environment,
    )
    store.add(job, text)
    try:
        chosen.add(name, expression, command)
    except BaseException:  # a job without a timer would be listed and never run
        store.remove(name)
        raise
    output.note(f"The job {name} runs at {expression.text} ({chosen.name}).")


@schedule.command("list")
def list_jobs() -> None:
    """List all jobs, with the last run of each."""
    store = _store()
    for name in store.names():
        job, runs = store.load(name), store.runs(name)
        last = _summary(runs[-1]) if runs else "never ran"
        prompt = one_line(store.prompt(name), WIDTH)
        typer.echo(f"{name}  {job.cron}  {last}  {one_line(job.cwd, WIDTH)}  {prompt}")


@schedule.command("show")
def show_job(name: Name) -> None:
    """Show a job with its whole prompt."""
    store = _store()
    job = store.load(name)
    facts = {
        "times": f"{job.cron} ({job.timer})",
        "directory": job.cwd,
        "model": job.model or "(from the settings)",
        "approve": job.approve.value if job.approve else "(from the settings)",
    }
    for label, value in facts.items():
        typer.echo(f"{label}: {one_line(value, 200)}")
    typer.echo(f"\n{sanitize(store.prompt(name))}")


@schedule.command("run")
def run_now(name: Name) -> None:
    """Run a job now; timers do this too."""
    run = jobs.run_job(_store(), name, os.environ)
    typer.echo(sanitize(run.output))
    raise typer.Exit(run.exit_code)


@schedule.command("log")
def show_log(
    name: Name,
    last: Annotated[int, typer.Option(min=1, help="How many runs to show.")] = 10,
) -> None:
    """Show the last runs of a job with their answers."""
    store = _store()
    store.load(name)  # raises for an unknown job, whose log would look empty
    for run in store.runs(name)[-last:]:
        typer.echo(_summary(run))
        if run.output:
            typer.echo("".join(f"  {line}\n" for line in sanitize(run.output).splitlines()))


@schedule.command("remove")
def remove_job(name: Name) -> None:
    """Remove a job and its log; its conversations stay."""
    store = _store()
    job = store.load(name)
    timers.choose_timer(job.timer, _units()).remove(name)
    store.remove(name)
    output.note(f"The job {name} is removed.")


def _summary(run: jobs.Run) -> str:
    """`2026-05-01T09:00:00  exit 0  12.3 s  1 denied  session ID`."""
    denied = f"  {run.denied} denied" if run.denied else ""
    session = f"  session {run.session}" if run.session else ""
    return f"{run.started}  exit {run.exit_code}  {run.seconds:.1f} s{denied}{session}"


def _store() -> jobs.JobStore:
    return jobs.JobStore(paths.Paths.from_env(os.environ).schedule)


def _units() -> Path:
    """The directory of the user's systemd units, in XDG's directory for settings."""
    return paths.Paths.from_env(os.environ).config.parent / "systemd" / "user"
