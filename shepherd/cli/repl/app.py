"""The interactive terminal: messages and commands, one after the other."""

import asyncio
import os
from collections.abc import Sequence

from rich.text import Text

from shepherd import __version__
from shepherd.cli.assemble import Assembly
from shepherd.cli.first_start import suggestions
from shepherd.cli.repl.approve import TerminalApprover
from shepherd.cli.repl.clean import one_line
from shepherd.cli.repl.commands import CommandContext, CommandTable, fill_table, parse_command
from shepherd.cli.repl.paint import BLANK_LINE, Piece
from shepherd.cli.repl.render import Renderer
from shepherd.cli.repl.replay import show_last_exchanges
from shepherd.cli.repl.screen import Screen
from shepherd.cli.repl.stage import build_surface
from shepherd.cli.repl.status import Status, short_name, status_text
from shepherd.cli.repl.surface import Actions
from shepherd.cli.repl.turns import NotSentError, Turns
from shepherd.cli.repl.work import WorkQueue
from shepherd.errors import ShepherdError

FRAME_SECONDS = 0.125


async def run_repl(assembly: Assembly) -> int:
    """Talk until the user leaves; the exit code."""
    await Repl(assembly).run()
    return 0


class Repl:
    """One conversation on one terminal."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._status = _initial_status(assembly)
        self._queue = WorkQueue(self._handle, self._interrupted, self._idle)
        self._table = CommandTable()
        actions = Actions(self._submit, self._stop, self._leave, lambda: self._queue.busy)
        terminal = assembly.config.terminal
        self._surface = build_surface(terminal, assembly.paths, assembly.cwd, actions, self._table)
        theme = terminal.code_theme
        self._renderer = Renderer(self._surface, self._status, theme)
        self._renderer.show_thinking = assembly.config.terminal.show_thinking
        approver = TerminalApprover(self._surface, self._renderer)
        self._turns = Turns(assembly, self._renderer, self._status, approver)
        context = CommandContext(assembly, self._surface, self._renderer, self._status, self._leave)
        fill_table(self._table, context)
        if isinstance(self._surface, Screen):
            self._surface.live = self._live
            self._surface.status = self._status_line

    async def run(self) -> None:
        """Greet, talk until the user leaves, say goodbye."""
        self._greet()
        begun = (self._queue.run(), self._load(), self._suggest(), self._tick())
        work = [asyncio.ensure_future(c) for c in begun]
        for task in work:
            task.add_done_callback(self._leave_on_failure)
        try:
            await self._surface.run()
        finally:
            for task in work:
                task.cancel()
            outcomes = await asyncio.gather(*work, return_exceptions=True)
            self._say_goodbye()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

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
        command = parse_command(text)
        if command is not None:
            await self._run_command(text, *command)
            return
        try:
            await self._turns.send(text)
        except NotSentError as error:
            self._renderer.turn_over()
            if str(error):
                self._renderer.error(str(error))
            self._surface.restore(text)
        finally:
            self._renderer.activity.stop()

    async def _run_command(self, text: str, name: str, argument: str) -> None:
        self._renderer.user(text)
        command = self._table.find(name)
        if command is not None and argument and not command.usage:
            self._renderer.error(f"/{name} takes nothing behind it; it was not done.")
            return
        if command is not None:
            await command.run(argument)
            return
        nearest = self._table.nearest(name)
        meant = f"; did you mean /{nearest}?" if nearest else "; /help lists all."
        self._renderer.error(f"There is no command /{one_line(name, 40)}{meant}")

    def _interrupted(self) -> None:
        self._renderer.interrupted()

    def _idle(self) -> None:
        self._surface.idle()

    async def _load(self) -> None:
        self._status.state = "loading"
        try:
            backend = await self._assembly.backend()
        except ShepherdError as error:
            self._status.state = "not loaded"
            self._renderer.error(str(error))
            self._renderer.notice("/model NAME loads another; /provider lists what there is")
        else:
            await self._status.loaded(backend, self._assembly.session)
        self._surface.refresh()

    async def _suggest(self) -> None:
        """Tell, once, what this machine has that could answer in place of the built-in model."""
        assembly = self._assembly
        told_file = assembly.paths.told_file
        try:
            lines = await suggestions(assembly.config, assembly.providers, os.environ, told_file)
        except ShepherdError as error:
            self._renderer.error(str(error))
            return
        for line in lines:
            self._renderer.notice(line)

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

    def _greet(self) -> None:
        dot = self._surface.painter.glyphs.dot
        greeting = Text(f"Shepherd {__version__}", style="bold")
        greeting.append(
            f" {dot} {short_name(self._assembly.model_name)} {dot} /help", style="quiet"
        )
        self._surface.show(Piece(greeting))
        self._assembly.notices.listen(lambda text: self._renderer.notice(text, "warn"))
        if self._assembly.session.messages:
            show_last_exchanges(self._assembly.session.messages, self._renderer)

    def _say_goodbye(self) -> None:
        if self._assembly.transcript is not None and self._assembly.session.messages:
            text = f"Go on with: shepherd --resume {self._assembly.session.id}"
            self._surface.show(BLANK_LINE, Piece(Text(text, style="quiet"), soft_wrap=True))


def _initial_status(assembly: Assembly) -> Status:
    return Status(
        model=assembly.model_name,
        approve=assembly.policy.mode.value,
        thinking=assembly.session.thinking,
        directory=assembly.cwd.name,
    )
