"""The interactive terminal on a shared conversation."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from shepherd.cli.connect.client import SharedSessionClient
from shepherd.cli.connect.remote import RemoteSession
from shepherd.cli.render.renderer import Renderer, show_last_exchanges
from shepherd.cli.render.status import Status, short_name
from shepherd.cli.render.surface import Surface
from shepherd.cli.repl.approve import TerminalApprover
from shepherd.cli.repl.commands import Command, CommandTable
from shepherd.cli.repl.commands.knowledge import message_command
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.repl.context_view import part_rows
from shepherd.cli.repl.loop import TerminalLoop
from shepherd.cli.terminal.attachments import described, mentioned_images
from shepherd.cli.terminal.paint import BLANK_LINE, Piece
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.cli.terminal.secrets import redact
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.commands.table import COMMANDS
from shepherd.conversation.context_use import ContextPart
from shepherd.conversation.own_commands import ALONE
from shepherd.conversation.shared.protocol import Event, UpdateKind, to_event
from shepherd.errors import InvalidRequestError
from shepherd.events import CallbackEvent
from shepherd.images import Image
from shepherd.messages import JsonObject, ToolCall, message_from_json


@dataclass(frozen=True, slots=True)
class ReplViewer:
    """Shows the turns of all clients, with a line before those of others."""

    renderer: Renderer

    def event(self, event: Event, *, mine: bool) -> None:
        """Show an event."""
        self.renderer(*event)
        kind, content, name, call_id = event
        if kind is CallbackEvent.TOOL_CALL:
            self.renderer.tool_started(ToolCall(call_id, name, json.loads(content)))

    def prompt(self, text: str) -> None:
        """Show a prompt of another client."""
        self.renderer.notice(f"another client: {text}", "user")

    def waiting(self, position: int) -> None:
        """Show the number of requests before this one."""
        self.renderer.activity.start(f"waiting, position {position} in the queue")

    def ended(self, *, mine: bool) -> None:
        """Show the end of the turn."""
        self.renderer.turn_over()

    def notice(self, text: str) -> None:
        """Show a line."""
        self.renderer.notice(text, "warn")


@dataclass(frozen=True, slots=True)
class RemoteSteering:
    """A `Steering` of the server's turn; the server can't give a message back."""

    steer: Callable[[str], Awaitable[None]]
    waiting: Sequence[str] = ()

    async def send(self, text: str) -> None:
        """Send it."""
        await self.steer(text)

    def take_back(self) -> str | None:
        """There is nothing to withdraw."""
        return None


class RemoteRepl:
    """A terminal on a server's conversation: it sends prompts and shows all updates."""

    def __init__(
        self, client: SharedSessionClient, config: Config, cwd: Path, paths: Paths
    ) -> None:
        self._client = client
        self._cwd = cwd
        self._status = Status(directory=client.url.partition("://")[2])
        loop = self._loop = TerminalLoop(
            config.terminal, paths, cwd, self._status, self._answer, place=" here"
        )
        self._surface, self._renderer = loop.surface, loop.renderer
        approver = TerminalApprover(loop.surface, loop.renderer)
        self._remote = RemoteSession(client, ReplViewer(loop.renderer), approver)
        loop.waiting.steering = RemoteSteering(self.steer)
        if sys.stdin.isatty():  # text from a file or a pipe must not run anything
            loop.own_command = self._run_own
        loop.table.extend(remote_commands(client, loop.table, loop.surface, loop.leave))

    async def run(self) -> int:
        """Talk until the user leaves; raises ShepherdError if the connection is lost."""
        async with self._remote.following() as session:
            self._greet(session)
            self._add_commands(session)
            await self._loop.run(self._remote.lost())
        return 0

    def _add_commands(self, session: JsonObject) -> None:
        """Add the commands that the server's conversation expands."""
        for command in session.get("commands", []):
            name = one_line(str(command["name"]), _MAX_TEXT)
            if self._loop.table.find(name) is None:
                entry = message_command(name, str(command["hint"]), str(command["summary"]))
                self._loop.table.extend([entry])

    async def _answer(self, text: str) -> None:
        self._renderer.user(text)
        try:
            images = await self._attach(text)
            self._renderer.activity.start("waiting for the server")
            await self._remote.ask(text, images)
        except InvalidRequestError:  # the server does not have it
            self._renderer.turn_over()
            self._surface.restore(text)
            raise

    async def _run_own(self, text: str) -> None:
        """Run a line on the server; the output of `!LINE` comes as an update, as to all clients."""
        self._renderer.user(redact(text))
        self._renderer.activity.start("running at the server")
        try:
            output = await self._client.command(text)
        finally:
            self._renderer.turn_over()
        if text.startswith(ALONE):
            self._surface.show(Piece(Text(sanitize(output)), soft_wrap=True))

    async def steer(self, text: str) -> None:
        """Let a message join the running turn; raises ShepherdError if it can't be sent."""
        await self._remote.steer(text, await self._attach(text))

    async def _attach(self, text: str) -> tuple[Image, ...]:
        images = await asyncio.to_thread(mentioned_images, text, self._cwd)
        for image in images:
            self._renderer.notice(f"attached {described(image)}")
        return images

    def _greet(self, session: JsonObject) -> None:
        self._status.model = str(session["model"])
        self._status.context_used = int(session["context"]["used"])
        self._status.context_size = int(session["context"]["size"])
        self._loop.greet(f"{short_name(self._status.model)} at {self._client.url}")
        messages = [message_from_json(data) for data in session["messages"]]
        if messages:
            show_last_exchanges(messages, self._renderer)
        running = session["running"]
        if running:
            self._surface.show(BLANK_LINE)
            for piece in running["partial"]:
                event = to_event(UpdateKind(piece["kind"]), {"language": "", **piece})
                if event is not None:
                    self._renderer(*event)


_MAX_TEXT = 60


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
        Command("skills", "", "the skills that the model can read", commands.skills),
        Command("exit", "", "leave; the conversation goes on (also Ctrl+D)", commands.exit),
        Command("quit", "", "leave; the conversation goes on", commands.exit),
        *(
            Command(c.name, c.hint, c.description.lower(), partial(commands.of_server, c.name))
            for c in COMMANDS.values()
            if c.name not in ("clear", "context", "skills")
        ),
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
            (str(entry["request"]), f"{what}: {one_line(str(entry['prompt']), _MAX_TEXT)}")
            for what, entries in (("runs", running), ("waits", session["queue"]))
            for entry in entries
        ]
        self._say(two_columns(rows) if rows else Text("Nothing runs, nothing waits."))

    async def cancel(self, argument: str) -> None:
        session = await self.client.session()
        running = [session["running"]] if session["running"] else []
        pending = [str(entry["request"]) for entry in (*running, *session["queue"])]
        request = argument or (str(running[0]["request"]) if running else "")
        if request not in pending:
            what = (
                f"There is no request {one_line(request, _MAX_TEXT)}."
                if request
                else "Nothing runs."
            )
            self._say(Text(what))
            return
        await self.client.cancel(request)
        self._say(Text(f"The request {request} is cancelled."))

    async def clear(self, argument: str) -> None:
        await self.client.clear()

    async def context(self, argument: str) -> None:
        session, context = await self.client.session(), await self.client.context()
        size, count = int(context["size"]), len(session["messages"])
        rows = part_rows([ContextPart(p["name"], p["tokens"]) for p in context["parts"]], size)
        about = "" if context["exact"] else "about "
        rows.append(("used", f"{about}{context['used']:,} of {size:,} tokens, {count} messages"))
        rows.append(("session", str(session["id"])))
        self._say(two_columns(rows))

    async def skills(self, argument: str) -> None:
        session = await self.client.session()
        rows = [(str(s["name"]), str(s["description"])) for s in session.get("skills", [])]
        self._say(two_columns(rows) if rows else Text("The server has no skills."))

    async def of_server(self, name: str, argument: str) -> None:
        """Run a command of the conversation; its output comes as an update, as to all clients."""
        await self.client.command(f"/{name} {argument}".strip())

    async def exit(self, argument: str) -> None:
        self.leave()

    def _say(self, content: RenderableType) -> None:
        self.surface.show(BLANK_LINE, Piece(content))
