"""The slash commands of a terminal on a shared conversation."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from shepherd.cli.connect.client import SharedSessionClient
from shepherd.cli.render.surface import Surface
from shepherd.cli.repl.commands import Command, CommandTable
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.terminal.paint import BLANK_LINE, Piece
from shepherd.cli.terminal.sanitize import one_line

_SHOWN = 60


def remote_commands(
    client: SharedSessionClient, table: CommandTable, surface: Surface, leave: Callable[[], None]
) -> list[Command]:
    """The commands."""
    commands = _Commands(client, table, surface, leave)
    return [
        Command("help", "", "what there is", commands.help),
        Command("queue", "", "what runs and what waits at the server", commands.queue),
        Command("cancel", "[ID]", "stop what runs, or the request ID", commands.cancel),
        Command("clear", "", "forget the conversation", commands.clear),
        Command("context", "", "how full the context is", commands.context),
        Command("exit", "", "leave; the conversation goes on (also Ctrl+D)", commands.exit),
    ]


@dataclass(frozen=True, slots=True)
class _Commands:
    client: SharedSessionClient
    table: CommandTable
    surface: Surface
    leave: Callable[[], None]

    async def help(self, argument: str) -> None:
        rows = [(f"/{c.name} {c.usage}".strip(), c.summary) for c in self.table]
        self._say(two_columns(rows))

    async def queue(self, argument: str) -> None:
        session = await self.client.session()
        running = [session["running"]] if session["running"] else []
        rows = [
            (str(entry["request"]), f"{what}: {one_line(str(entry['prompt']), _SHOWN)}")
            for what, entries in (("runs", running), ("waits", session["queue"]))
            for entry in entries
        ]
        self._say(two_columns(rows) if rows else Text("Nothing runs, nothing waits."))

    async def cancel(self, argument: str) -> None:
        session = await self.client.session()
        running = session["running"]
        request = argument or (str(running["request"]) if running else "")
        if not request:
            self._say(Text("Nothing runs."))
            return
        await self.client.cancel(request)

    async def clear(self, argument: str) -> None:
        await self.client.clear()

    async def context(self, argument: str) -> None:
        session = await self.client.session()
        context, count = session["context"], len(session["messages"])
        used = f"{context['used']} of {context['size']} tokens, {count} messages"
        self._say(two_columns([("context", used), ("session", str(session["id"]))]))

    async def exit(self, argument: str) -> None:
        self.leave()

    def _say(self, content: RenderableType) -> None:
        self.surface.show(BLANK_LINE, Piece(content))
