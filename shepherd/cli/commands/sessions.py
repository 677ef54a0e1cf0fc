"""`shepherd sessions`: saved conversations."""

import os
from typing import Annotated

import typer

from shepherd import errors, messages
from shepherd.cli.commands.output import note, warn
from shepherd.cli.request import loaded_config
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.config.paths import Paths
from shepherd.tools.deferred import open_call
from shepherd.tools.text import pluralize
from shepherd.transcript import SessionStore
from shepherd.undo.store import forget_session

TITLE_WIDTH = 60
LINE_WIDTH = 200

sessions = typer.Typer(name="sessions", help="Saved conversations.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(help="The session's id, or its beginning.")]
Shared = Annotated[
    bool,
    typer.Option("--database", help="Those of servers, in the database of `server.database`."),
]


@sessions.command("list")
def list_sessions(context: typer.Context, *, database: Shared = False) -> None:
    """List all saved sessions, the newest first."""
    summaries, problems = _store(context, database=database).summaries()
    for item in summaries:
        when = item.updated.astimezone().strftime("%Y-%m-%d %H:%M")
        title = one_line(item.title, TITLE_WIDTH)
        where = one_line(item.cwd, LINE_WIDTH)
        size = f"{pluralize(item.messages, 'message', '>4'):<13}"
        typer.echo(f"{item.id}  {when}  {size}  {where}  {title}")
    if not (summaries or problems):
        note("There are no saved sessions.")
    for problem in problems:
        warn(problem)


@sessions.command("show")
def show_session(context: typer.Context, id: Id, *, database: Shared = False) -> None:
    """Show the conversation as text."""
    saved = _store(context, database=database).read(_checked_id(id))
    for warning in saved.warnings:
        warn(warning)
    typer.echo(f"{saved.id}  {saved.model}  {sanitize(saved.header.cwd)}")
    for message in saved.messages:
        typer.echo(_as_text(message))


@sessions.command("delete")
def delete_session(context: typer.Context, id: Id, *, database: Shared = False) -> None:
    """Delete a session permanently, with the files that were kept for it."""
    deleted = _store(context, database=database).delete(_checked_id(id))
    forget_session(Paths.from_env(os.environ).undo_file, deleted, warn)
    note(f"Session {deleted} is deleted.")


def _checked_id(id: str) -> str:
    """The id; raises UsageError for an empty one, because all ids begin with it."""
    if not id.strip():
        raise errors.UsageError("The id is empty; `shepherd sessions list` shows the ids.")
    return id


def _store(context: typer.Context, *, database: bool) -> SessionStore:
    """The sessions of servers in the database, or those of the terminal in files."""
    if database:
        from shepherd.cli.serve.database import required_database, session_store

        server = required_database(loaded_config(context), os.environ)
        return session_store(server, Paths.from_env(os.environ))
    return SessionStore(Paths.from_env(os.environ).sessions)


def _as_text(message: messages.Message) -> str:
    """A message in lines: `> question`, `answer`, `→ call arguments`, and its result set in."""
    content = message.plain_text
    if message.role is messages.Role.TOOL:
        return f"  {one_line(content, LINE_WIDTH)}"
    sign = "> " if message.role is messages.Role.USER and not message.is_hint else ""
    text = [f"\n{sign}{sanitize(content)}"] if content else []
    calls = map(open_call, message.tool_calls)  # in place of calls through `use_tool`
    lines = (f"→ {call.name} {one_line(call.arguments_json, LINE_WIDTH)}" for call in calls)
    return "\n".join([*text, *lines])
