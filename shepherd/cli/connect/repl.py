"""The interactive terminal on a shared conversation."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from shepherd import __version__
from shepherd.backends.cliclient.client import SharedSessionClient
from shepherd.backends.cliclient.vocabulary import UpdateKind, to_event
from shepherd.cli.connect.commands import remote_commands
from shepherd.cli.connect.remote import RemoteSession
from shepherd.cli.connect.viewer import ReplViewer
from shepherd.cli.repl.app import FRAME_SECONDS
from shepherd.cli.repl.approve import TerminalApprover
from shepherd.cli.repl.clean import one_line
from shepherd.cli.repl.commands import CommandTable, parse_command
from shepherd.cli.repl.paint import BLANK_LINE, Piece
from shepherd.cli.repl.render import Renderer
from shepherd.cli.repl.replay import show_last_exchanges
from shepherd.cli.repl.screen import Screen
from shepherd.cli.repl.stage import build_surface
from shepherd.cli.repl.status import Status, short_name, status_text
from shepherd.cli.repl.surface import Actions
from shepherd.cli.repl.work import WorkQueue
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.errors import ShepherdError
from shepherd.messages import JsonObject, message_from_json


class RemoteRepl:
    """A terminal on the conversation of a server: prompts go there, everything comes from there."""

    def __init__(
        self, client: SharedSessionClient, config: Config, cwd: Path, paths: Paths
    ) -> None:
        self._client = client
        self._status = Status(directory=client.url.partition("://")[2])
        self._queue = WorkQueue(self._handle, self._interrupted, self._idle)
        table = self._table = CommandTable()
        actions = Actions(self._submit, self._stop, self._leave, lambda: self._queue.busy)
        self._surface = build_surface(config.terminal, paths, cwd, actions, table)
        self._renderer = Renderer(self._surface, self._status, config.terminal.code_theme)
        self._renderer.show_thinking = config.terminal.show_thinking
        viewer = ReplViewer(self._renderer)
        approver = TerminalApprover(self._surface, self._renderer)
        self._remote = RemoteSession(client, viewer, approver)
        table.extend(remote_commands(client, table, self._surface, self._leave))
        if isinstance(self._surface, Screen):
            self._surface.live = self._live
            self._surface.status = self._status_line

    async def run(self) -> int:
        """Talk until the user leaves; raises ShepherdError when the server is lost."""
        async with self._remote.following() as session:
            self._greet(session)
            work = [
                asyncio.ensure_future(c)
                for c in (self._queue.run(), self._remote.lost(), self._tick())
            ]
            for task in work:
                task.add_done_callback(self._leave_on_failure)
            try:
                await self._surface.run()
            finally:
                for task in work:
                    task.cancel()
                outcomes = await asyncio.gather(*work, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return 0

    def _submit(self, text: str) -> None:
        self._surface.hint("")
        if text.strip():
            self._queue.add(text)
            self._surface.refresh()

    def _stop(self) -> None:
        if not self._queue.busy:
            self._surface.hint("Ctrl+D leaves, /help helps")
            return
        waiting = self._queue.stop()
        if waiting:
            self._surface.restore("\n".join(waiting))
        self._surface.refresh()

    def _leave(self) -> None:
        self._surface.leave()

    async def _handle(self, text: str) -> None:
        self._renderer.user(text)
        command = parse_command(text)
        try:
            if command is not None:
                await self._run_command(*command)
                return
            self._renderer.activity.start("waiting for the server")
            await self._remote.ask(text)
        except ShepherdError as error:
            self._renderer.error(str(error))
        finally:
            self._renderer.activity.stop()

    async def _run_command(self, name: str, argument: str) -> None:
        command = self._table.find(name)
        if command is None:
            nearest = self._table.nearest(name)
            meant = f"; did you mean /{nearest}?" if nearest else "; /help lists all."
            self._renderer.error(f"There is no command /{one_line(name, 40)} here{meant}")
        elif argument and not command.usage:
            self._renderer.error(f"/{name} takes nothing behind it; it was not done.")
        else:
            await command.run(argument)

    def _interrupted(self) -> None:
        self._renderer.interrupted()

    def _idle(self) -> None:
        self._surface.idle()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(FRAME_SECONDS)
            if self._renderer.activity.label:
                self._surface.refresh()

    def _leave_on_failure(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._leave()

    def _live(self) -> Sequence[Piece]:
        waiting = [
            Piece(Text(f"  waiting: {one_line(text, 60)}", style="quiet"))
            for text in self._queue.waiting
        ]
        return [*self._renderer.live(), *waiting]

    def _status_line(self, width: int) -> str:
        return status_text(self._status, width, self._surface.painter.glyphs.dot)

    def _greet(self, session: JsonObject) -> None:
        dot = self._surface.painter.glyphs.dot
        self._status.model = str(session["model"])
        self._status.context_used = int(session["context"]["used"])
        self._status.context_size = int(session["context"]["size"])
        greeting = Text(f"Shepherd {__version__}", style="bold")
        greeting.append(
            f" {dot} {short_name(self._status.model)} at {self._client.url} {dot} /help",
            style="quiet",
        )
        self._surface.show(Piece(greeting))
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
