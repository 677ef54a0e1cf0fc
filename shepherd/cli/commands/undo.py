"""`shepherd undo`: what tools changed in files, taken back outside of a session."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from shepherd.cli.commands import output
from shepherd.cli.commands.arguments import Json
from shepherd.cli.request import loaded_config
from shepherd.cli.terminal.sanitize import one_line
from shepherd.config.paths import Paths
from shepherd.conversation.history import OFF
from shepherd.conversation.toolbox import build_keeper, build_policy
from shepherd.errors import UndoError
from shepherd.tools.text import valid_text
from shepherd.transcript.store import new_id
from shepherd.undo.points import SESSION_END, Point
from shepherd.undo.recorder import Recorder

T = TypeVar("T")
LABEL_WIDTH = 80

undo = typer.Typer(
    name="undo",
    help="What tools changed in files: points to look at, and to go back to.",
    no_args_is_help=True,
)
Id = Annotated[str, typer.Argument(metavar="POINT", help="The point, as `list` shows it.")]


@undo.command("list")
def list_points(
    context: typer.Context,
    *,
    everywhere: Annotated[bool, typer.Option("--all", help="Those of all directories.")] = False,
    as_json: Json = False,
) -> None:
    """List the points at which files below this directory were changed, the newest first.

    Files over undo.file_mib are not kept. The oldest go beyond undo.max_mib, and those of a session
    undo.max_days after its last change.
    """
    cwd = Path.cwd()
    points = _do(context, Recorder.points)
    points = [point for point in points if everywhere or point.is_below(cwd)]
    if as_json:
        listed = [
            {
                "id": point.id,
                "session": point.session,
                "time": _time(point).isoformat(timespec="seconds"),
                "label": point.change.label,
                "state": point.state,
                "files": [{"path": valid_text(p), "change": d} for p, d in point.deeds.items()],
            }
            for point in points
        ]
        typer.echo(json.dumps(listed, indent=2))
    elif points:
        output.show_table([_row(point) for point in points])
    else:
        output.note("No file was changed here; --all shows other directories.")


@undo.command("show")
def show_point(context: typer.Context, id: Id) -> None:
    """Show what was changed at a point, as a diff; of what is not text, the sizes."""
    output.show(_do(context, lambda r: r.show(id)))


@undo.command("restore")
def restore(
    context: typer.Context,
    id: Id,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATHS...", help="Only these, and what is below."),
    ] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Also what has changed since.")] = False,
    as_json: Json = False,
) -> None:
    """Give files the states that they had before a point.

    Nothing happens if something else has changed one of them since, unless --force. This is a point
    of its own, which can be taken back.
    """
    # of a link itself, not of its target
    chosen = [path.parent.resolve() / path.name for path in map(Path.absolute, paths or ())]
    session = new_id(datetime.now(UTC))
    try:
        moved = _do(context, lambda r: r.restore(id, chosen, force=force), session)
    except UndoError as error:
        for detail in error.details:
            output.show(detail)
        raise
    if as_json:
        typer.echo(json.dumps(moved.to_json(), indent=2))
    else:
        for line in moved.lines("Done"):
            output.show(line)
    if moved.restored or moved.removed:
        output.note(f"`shepherd undo restore {session[-SESSION_END:]}-0` takes this back.")
    raise typer.Exit(1 if moved.failed else 0)


def _do(context: typer.Context, work: Callable[[Recorder], T], session: str = "") -> T:
    """What `work` returns for the store; its changes are those of this session."""
    config, paths = loaded_config(context), Paths.from_env(os.environ)
    keeper = build_keeper(config, paths, build_policy(config, paths, Path.cwd()), output.warn)
    if keeper is None:
        raise UndoError(OFF)
    keeper.begin(session, int)

    async def do() -> T:
        try:
            return await keeper.do(work)
        finally:
            await keeper.aclose()

    return asyncio.run(do())


def _row(point: Point) -> list[str]:
    """The cells of a line about a point."""
    counts = Counter(point.deeds.values())
    files = ", ".join(f"{deed} {counts[deed]:,}" for deed in sorted(counts)) or "folders"
    label = one_line(point.change.label, LABEL_WIDTH)
    return [point.id, f"{_time(point):%Y-%m-%d %H:%M}", files, point.state, label]


def _time(point: Point) -> datetime:
    return datetime.fromtimestamp(point.change.time / 10**9).astimezone()
