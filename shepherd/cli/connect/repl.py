"""The interactive terminal on a shared conversation."""

import asyncio
import os
from functools import partial
from pathlib import Path

from msgspec import Struct
from rich.text import Text

from shepherd import errors, events
from shepherd.cli.connect.client import AGENT_UPDATES, SharedSessionClient
from shepherd.cli.connect.remote import RemoteQuestions, RemoteSession, Viewer, open_elsewhere
from shepherd.cli.render.renderer import show_last_exchanges
from shepherd.cli.render.status import Status, short_name
from shepherd.cli.repl.commands import Command, message_command
from shepherd.cli.repl.commands.session import basic_commands
from shepherd.cli.repl.loop import Frontend, TerminalLoop
from shepherd.cli.repl.turns import TerminalApprover
from shepherd.cli.terminal import attachments, paint, secrets
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.commands.command import Lines, Note, Row
from shepherd.conversation.commands.table import COMMANDS
from shepherd.conversation.context_use import ContextPart, part_rows
from shepherd.conversation.own_commands import ALONE
from shepherd.conversation.shared.updates import UpdateKind, to_event
from shepherd.images import Image
from shepherd.messages import JsonObject, ToolCall, message_from_json

MAX_TEXT = 60


class _RemoteTerminal(Frontend):
    """A terminal of this machine for what a server does."""

    place = " here"

    def __init__(self, client: SharedSessionClient, config: Config, cwd: Path) -> None:
        self._client = client
        self._cwd = cwd
        self._status = Status(directory=client.url.partition("://")[2])
        paths = Paths.from_env(os.environ)
        loop = self._loop = TerminalLoop(config.terminal, paths, cwd, self._status, self)
        self._surface, self._renderer = loop.surface, loop.renderer
        self._approver = TerminalApprover(loop.surface, loop.renderer)

    def notice(self, text: str) -> None:
        """Show a sentence about the connection."""
        self._renderer.notice(text, "warn")


class RemoteRepl(_RemoteTerminal, Viewer):
    """A terminal on a server's conversation: it sends prompts and shows the turns of all clients.

    A message that has joined a turn can't be taken back: the server does not return it.
    """

    can_steer = True

    def __init__(self, client: SharedSessionClient, config: Config, cwd: Path) -> None:
        super().__init__(client, config, cwd)
        self._remote = RemoteSession(client, self, self._approver)
        self._loop.table.extend(RemoteCommands(client, self._loop).commands())

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
            name = one_line(str(command["name"]), MAX_TEXT)
            if self._loop.table.find(name) is None:  # those of the terminal go first
                entry = message_command(name, str(command["hint"]), str(command["summary"]))
                self._loop.table.extend([entry])

    def event(self, event: events.Event, *, mine: bool) -> None:
        self._renderer(event)
        if isinstance(event, ToolCall):  # the server runs it; no executor reports its start
            self._renderer.tool_started(event)

    def prompt(self, text: str) -> None:
        self._renderer.notice(f"another client: {text}", "user")

    def queued(self, position: int) -> None:
        self._renderer.activity.start(f"waiting, position {position} in the queue")

    def ended(self, *, mine: bool) -> None:
        self._renderer.end_turn()

    async def answer(self, text: str) -> None:
        """Send a message, and wait for its answer."""
        self._renderer.user(text)
        try:
            images = await self._attach(text)
            self._renderer.activity.start("waiting for the server")
            await self._remote.ask(text, images)
        except errors.InvalidRequestError:  # the server does not have it
            self._renderer.end_turn()
            self._surface.restore(text)
            raise

    async def run_own(self, text: str) -> None:
        """Run a line on the server; the output of `!LINE` comes as an update, as to all clients."""
        self._renderer.user(secrets.redact(text))
        self._renderer.activity.start("running at the server")
        try:
            output = await self._client.command(text)
        finally:
            self._renderer.end_turn()
        if text.startswith(ALONE):
            self._surface.show(paint.Piece(Text(sanitize(output)), soft_wrap=True))

    async def send(self, text: str) -> None:
        """Let a message join the running turn; raises ShepherdError if it can't be sent."""
        await self._remote.steer(text, await self._attach(text))

    async def _attach(self, text: str) -> tuple[Image, ...]:
        """The images that a message mentions; only images are sent from this machine."""
        images = await asyncio.to_thread(attachments.mentioned_images, text, self._cwd)
        for image in images:
            self._renderer.notice(f"attached {attachments.described(image)}")
        return images

    def _greet(self, session: JsonObject) -> None:
        """Show the model, the last exchanges, and what the running turn has written so far."""
        self._status.model = str(session["model"])
        self._status.context_used = int(session["context"]["used"])
        self._status.context_size = int(session["context"]["size"])
        self._loop.greet(f"{short_name(self._status.model)} at {self._client.url}")
        messages = [message_from_json(data) for data in session["messages"]]
        if messages:
            show_last_exchanges(messages, self._renderer)
        running = session["running"]
        if running:
            self._surface.show(paint.BLANK_LINE)
            for piece in running["partial"]:
                event = to_event(UpdateKind(piece["kind"]), piece)
                if event is not None:
                    self._renderer(event)
        for question in session.get("others_approvals", []):
            self.notice(open_elsewhere(question))


class RemoteCommands(Struct, frozen=True):
    """The commands of the server's conversation, and those of this terminal.

    The output of a command comes as an update, as to all clients. `/context` and `/skills` ask only
    for this client, also while a request runs.
    """

    client: SharedSessionClient
    loop: TerminalLoop

    def commands(self) -> list[Command[str]]:
        """All of them."""
        own = {"clear": self._clear, "context": self._context, "skills": self._skills}
        loop = self.loop
        commands = basic_commands(loop.table, loop.leave, "leave; the conversation goes on")
        commands += [
            Command("queue", "", "what runs and what waits at the server", self._queue,
                    beside=True),
            Command("cancel", "[ID]", "stop what runs, or the request ID", self._cancel,
                    beside=True),
        ]  # fmt: skip
        for command in COMMANDS.values():
            run = own.get(command.name) or partial(self._run, command.name)
            beside = command.name in ("context", "skills")  # the server runs others alone
            commands.append(
                Command(command.name, command.usage, command.summary, run, beside=beside)
            )
        return commands

    async def _queue(self, argument: str) -> Lines:
        """A row for the running request, if there is one, and for each that waits."""
        session = await self.client.session()
        requests = [("runs", session["running"])] if session["running"] else []
        requests += [("waits", request) for request in session["queue"]]
        rows = [
            Row(str(request["request"]), f"{state}: {one_line(str(request['prompt']), MAX_TEXT)}")
            for state, request in requests
        ]
        return rows or ["Nothing runs, nothing waits."]

    async def _cancel(self, argument: str) -> Lines:
        """Stop the request with this id, or the running one without an argument."""
        session = await self.client.session()
        running = str(session["running"]["request"]) if session["running"] else ""
        waiting = [str(request["request"]) for request in session["queue"]]
        request_id = argument or running
        if not request_id:
            return ["Nothing runs."]
        if request_id not in (running, *waiting):
            return [f"There is no request {one_line(request_id, MAX_TEXT)}."]
        await self.client.cancel(request_id)
        return [f"The request {request_id} is cancelled."]

    async def _clear(self, argument: str) -> None:
        """Delete the server's messages; all its clients are told."""
        await self.client.clear()

    async def _context(self, argument: str) -> Lines | None:
        """The tokens of the parts, as `/context` shows them; an argument is for the server."""
        if argument:
            return await self._run("context", argument)
        session, context = await self.client.session(), await self.client.context()
        size, count = int(context["size"]), len(session["messages"])
        parts = [ContextPart(part["name"], part["tokens"]) for part in context["parts"]]
        about = "" if context["exact"] else "about "  # an API's tokens are estimated
        used = f"{about}{context['used']:,} of {size:,} tokens, {count} messages"
        rows = [*part_rows(parts, size), ("used", used), ("session", str(session["id"]))]
        return [Row(*row) for row in rows]

    async def _skills(self, argument: str) -> Lines:
        """A row for each skill of the server's project."""
        session = await self.client.session()
        rows = [Row(str(s["name"]), str(s["description"])) for s in session.get("skills", [])]
        return rows or ["The server has no skills."]

    async def _run(self, name: str, argument: str) -> None:
        """Have the server run a command, whose output comes as an update."""
        await self.client.command(f"/{name} {argument}".strip())


NO_PROMPTS = "This server takes no prompts here: questions of its agent appear as they come."
LOST_ANSWERS = "the connection was lost for a while"


class ApprovalDesk(_RemoteTerminal):
    """A terminal that shows each open question of a server's agent, and sends the answers."""

    def __init__(self, client: SharedSessionClient, config: Config, cwd: Path) -> None:
        super().__init__(client, config, cwd)
        self._questions = RemoteQuestions(client, self._approver, self.notice)
        loop = self._loop
        loop.table.extend(basic_commands(loop.table, loop.leave, "leave", [Note(NO_PROMPTS)]))

    async def run(self) -> int:
        """Show questions until the user leaves; raises ShepherdError if the connection is lost."""
        state = await self._client.agent_questions()
        self._loop.greet(f"approvals for {self._client.url}")
        self._show(state)
        await self._loop.run(self._follow(str(state["update_id"])))
        return 0

    async def _follow(self, after: str) -> None:
        """Ask the questions after `after` until the connection is lost, which raises."""
        async for update in self._client.updates(after, AGENT_UPDATES):
            match update.kind:
                case UpdateKind.APPROVAL_NEEDED:
                    self._questions.ask(update.data)
                case UpdateKind.APPROVAL_DECIDED:
                    self._note_decision(update.data)
                case UpdateKind.SNAPSHOT:
                    self.notice(LOST_ANSWERS)
                    self._show(await self._client.agent_questions())
                case _:
                    pass

    def _show(self, state: JsonObject) -> None:
        """Ask all open questions, and no others."""
        questions = state["approvals"]
        self._questions.keep_only({str(question["id"]) for question in questions})
        for question in questions:
            self._questions.ask(question)

    def _note_decision(self, data: JsonObject) -> None:
        """Show who else has decided a question, if it was still asked here."""
        is_still_open = self._questions.withdraw(str(data["id"]))
        self._renderer.end_turn()
        if is_still_open:
            by = f" by {data['by']}" if data.get("by") else ""
            self._renderer.notice(f"{data['tool']}: {data['decision']}{by}")

    async def answer(self, text: str) -> None:
        """Refuse a message."""
        self.notice(NO_PROMPTS)

    async def run_own(self, text: str) -> None:
        """Refuse a line of the shell."""
        self.notice(NO_PROMPTS)
