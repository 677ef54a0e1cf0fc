"""The loop around a surface: it runs the inputs in order, and keys stop it."""

import asyncio
import os
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.text import Text

from shepherd.cli.render import surface, tool_view
from shepherd.cli.render.renderer import Renderer
from shepherd.cli.render.status import Status, status_text
from shepherd.cli.repl.commands.base import CommandLine, CommandTable, parse_command, show_lines
from shepherd.cli.repl.completion import Offers, PromptCompleter, no_offers
from shepherd.cli.repl.keys import marks_pastes
from shepherd.cli.repl.plain import PlainSurface
from shepherd.cli.repl.prompt import Prompt, open_history
from shepherd.cli.repl.queue import Steering, WaitingMessages, WorkQueue
from shepherd.cli.repl.screen import Screen
from shepherd.cli.repl.terminal import Attention, can_ask, read_focus_events, terminal_output
from shepherd.cli.repl.turns import is_own_command
from shepherd.cli.terminal import paint, secrets
from shepherd.cli.terminal.sanitize import one_line
from shepherd.config.paths import Paths
from shepherd.config.sections import TerminalSection
from shepherd.errors import ShepherdError
from shepherd.version import __version__

LONG_SECONDS = 10.0
"""The end of a longer turn draws the user's attention."""
FRAME_SECONDS = 0.25
LIGHT_THEME, DARK_THEME = "ansi_light", "ansi_dark"
LIGHT_BACKGROUNDS = ("7", "15")
"""The numbers of light colours in COLORFGBG."""


class Frontend(Steering, Protocol):
    """What the inputs of a terminal are for; what it does not override does nothing.

    `place` names this prompt in the error for an unknown command.
    """

    place: str = ""
    runs_own_beside: bool = False
    """Whether a line that begins with `!` can run while the model works."""

    async def answer(self, text: str) -> None:
        """Answer a message."""

    async def run_own(self, text: str) -> None:
        """Run a line that begins with `!`."""

    def turn_mode(self) -> None:
        """Change which tools run without a question."""

    def offers(self) -> Offers:
        """The prompts and resources of MCP servers, for the completion."""
        return no_offers()


class TerminalLoop(surface.Actions):
    """One terminal: a surface, a renderer, and the queue of inputs; it is what the keys act on.

    The commands in `table` handle lines that begin with a slash, `frontend` handles the others.
    """

    def __init__(
        self, settings: TerminalSection, paths: Paths, cwd: Path, status: Status, frontend: Frontend
    ) -> None:
        self.status = status
        self.table = CommandTable()
        self._frontend = frontend
        completer = PromptCompleter(self.table, cwd, frontend.offers)
        self.surface = build_surface(settings, paths.history_file, completer, self, cwd.name)
        self.renderer = Renderer(
            self.surface,
            status,
            show_thinking=settings.show_thinking,
            reword=self.table.with_slash_commands,
        )
        self._queue = WorkQueue(self._handle, self.renderer.interrupted, self._note_idle)
        self._beside: asyncio.Task[None] | None = None
        """The command that runs while the model works; one at a time."""
        self._is_answering = False
        """Whether what runs is a message, not a command."""
        self.waiting = WaitingMessages(
            self._queue, frontend, self.surface.restore, self.renderer.error
        )

    async def run(self, *beside: Coroutine[Any, Any, None]) -> None:
        """Handle inputs until the user leaves, and run `beside` meanwhile; raises their errors."""
        tasks = [
            asyncio.ensure_future(work) for work in (self._queue.run(), *beside, self._animate())
        ]
        for task in tasks:
            task.add_done_callback(self._leave_on_failure)
        try:
            await self.surface.run()
        finally:
            tasks += [self._beside] if self._beside is not None else []
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):  # a cancelled task is not one
                raise outcome

    def greet(self, about: str) -> None:
        """Show the program's name, what it is about, and how to get help."""
        dot = self.surface.painter.glyphs.dot
        greeting = Text(f"Shepherd {__version__}", style="bold")
        greeting.append(f" {dot} {about} {dot} /help", style="quiet")
        self.surface.show(paint.Piece(greeting))

    @property
    def busy(self) -> bool:
        return self._queue.busy or self._is_beside

    @property
    def has_waiting(self) -> bool:
        return not self.waiting.is_empty

    def submit(self, text: str) -> None:
        """Put a message or a command into the queue."""
        self.surface.hint("")  # removes an earlier one
        if self._runs_beside(text):
            self._beside = asyncio.ensure_future(self._run_beside(text))
        elif text.strip():
            self._queue.add(text)
        self.surface.refresh()

    def stop(self) -> None:
        """Stop what runs; of the messages that waited, one goes back into the prompt."""
        if not self.busy:
            self.surface.hint("Ctrl+D leaves, /help helps")
            return
        if self._beside is not None:
            self._beside.cancel()
        waiting = [*self.waiting.take_steering(), *self._queue.stop()]
        if isinstance(self.surface, PlainSurface):  # it prints each, as it has no prompt
            for text in waiting:
                self.surface.restore(text)
        elif waiting:
            # one text of several could make a message a part of a command, which would then run
            if not self.surface.prompt.text:
                self.surface.restore(waiting.pop(0))
            self._queue.hold(waiting)
        self.surface.refresh()

    def leave(self) -> None:
        self.surface.leave()

    def turn_mode(self) -> None:
        self._frontend.turn_mode()

    def steer(self, text: str) -> None:
        self.waiting.steer(text)
        self.surface.refresh()

    def take_back(self) -> None:
        self.waiting.take_back()

    def rewind(self) -> None:
        if self.table.find("rewind") is not None:  # a terminal on a server's agent has none
            self.submit("/rewind")

    def live(self) -> Sequence[paint.Piece]:
        typed = self.surface.prompt.text if isinstance(self.surface, Screen) else ""
        beside = self._runs_beside(typed)
        return [*self.renderer.live(), *self.waiting.pieces(typed, beside=beside)]

    def waiting_messages(self) -> Sequence[paint.Piece]:
        return self.waiting.messages()

    def status_line(self, width: int) -> str:
        return status_text(self.status, width, self.surface.painter.glyphs.dot)

    def held(self) -> str:
        return self.renderer.held()

    def results(self) -> Sequence[tool_view.FullResult]:
        return self.renderer.results.all

    async def _handle(self, text: str) -> None:
        """Run one input of the queue to its end."""
        command = parse_command(text)
        began = time.monotonic()
        try:
            # in a file or a pipe, nobody has typed a line of the shell: it is a message
            if is_own_command(text) and sys.stdin.isatty():
                await self._frontend.run_own(text)
            elif command is None or self.table.is_message(command.name):
                self._is_answering = True
                await self._frontend.answer(text)
            else:
                self.renderer.user(secrets.redact(text))
                if not await self._run_command(command):  # mistyped: it can be mended
                    self.surface.restore(text)
        except ShepherdError as error:
            self.renderer.error(str(error))
        finally:
            self._is_answering = False
            self.renderer.activity.stop()
            self.waiting.collect()  # what the turn did not take comes next
            self.surface.refresh()
            if time.monotonic() - began >= LONG_SECONDS:
                self.surface.alert("The answer is there.")

    @property
    def _is_beside(self) -> bool:
        """Whether a command runs while the model works, or still after that."""
        return self._beside is not None and not self._beside.done()

    def _runs_beside(self, text: str) -> bool:
        """Whether a text is a command that runs now, while the model answers.

        Behind another command it waits: that may change what it looks at.
        """
        if not self._is_answering or self._is_beside or self._queue.is_stopping:
            return False
        if is_own_command(text):
            return self._frontend.runs_own_beside and sys.stdin.isatty()
        line = parse_command(text)
        command = self.table.find(line.name) if line is not None else None
        return command is not None and command.beside

    async def _run_beside(self, text: str) -> None:
        """Run a command while the model works; the activity is the model's again afterwards."""
        activity = self.renderer.activity.label
        try:
            command = parse_command(text)
            if is_own_command(text):
                await self._frontend.run_own(text)
            elif command is not None:
                self.renderer.user(text)
                await self._run_command(command)
        except ShepherdError as error:
            self.renderer.error(str(error))
        finally:
            if self._queue.busy:
                self.renderer.activity.start(activity)
            else:
                self.renderer.activity.stop()
            self.surface.refresh()

    async def _run_command(self, line: CommandLine) -> bool:
        """Run a command; returns whether it exists."""
        command = self.table.find(line.name)
        if command is None:
            nearest = self.table.nearest(line.name)
            suggestion = f"; did you mean /{nearest}?" if nearest else "; /help lists all."
            if line.name in ("config", "settings"):
                suggestion = "; `shepherd config` in a shell shows the settings."
            name = one_line(line.name, 40)
            self.renderer.error(f"There is no command /{name}{self._frontend.place}{suggestion}")
            return False
        if line.argument and not command.usage:  # it may mean something else, as `/exit now`
            self.renderer.error(f"/{line.name} takes nothing behind it; it was not done.")
        else:
            lines = await command.run(line.argument)
            show_lines(lines or (), self.renderer, self.surface)
        return True

    def _note_idle(self) -> None:
        """All inputs are done: the messages that a turn did not take come next."""
        self.waiting.collect()
        self.surface.idle()

    async def _animate(self) -> None:
        """Move the sign of the activity, until the user leaves."""
        while True:
            await asyncio.sleep(FRAME_SECONDS)
            if self.renderer.activity.label:  # without an activity there is no sign
                self.surface.animate()

    def _leave_on_failure(self, task: asyncio.Future[None]) -> None:
        """End the terminal if work beside it fails; `run` then raises the error."""
        if not task.cancelled() and task.exception() is not None:
            self.leave()


def can_redraw(env: Mapping[str, str]) -> bool:
    """Whether input and output are a terminal that understands cursor movements."""
    moves_cursor = env.get("TERM", "") not in ("", "dumb", "unknown")
    return moves_cursor and sys.stdin.isatty() and sys.stdout.isatty()


def code_theme(name: str, env: Mapping[str, str]) -> str:
    """The Pygments style; for `auto`, the terminal's own colours on its background."""
    if name != "auto":
        return name
    background = env.get("COLORFGBG", "").rpartition(";")[2]  # the last one of `0;15`
    return LIGHT_THEME if background in LIGHT_BACKGROUNDS else DARK_THEME


def build_surface(
    terminal: TerminalSection,
    history_file: Path,
    completer: PromptCompleter,
    actions: surface.Actions,
    place: str,
) -> Screen | PlainSurface:
    """The surface that fits this terminal; `place` is in the title of its window."""
    encoding = sys.stdout.encoding or "utf-8"
    if not can_redraw(os.environ):
        return PlainSurface(paint.Painter(styled=False, encoding=encoding), actions)
    theme = code_theme(terminal.code_theme, os.environ)
    painter = paint.Painter(encoding=encoding, code_theme=theme)
    prompt = Prompt(
        open_history(history_file),
        completer,
        painter.glyphs.user,
        bursts_are_pastes=not marks_pastes(os.environ),
    )
    # "" leaves the title alone
    title = f"Shepherd: {place}" if terminal.title else ""
    read_focus_events()
    screen = Screen(
        painter,
        prompt,
        actions,
        Attention(terminal_output(painter), os.environ, title=title, alerts=terminal.notify),
        vi_mode=terminal.edit_mode == "vi",
    )
    if terminal.code_theme == "auto" and can_ask(os.environ):  # it knows better than COLORFGBG

        def set_theme(*, light: bool) -> None:
            painter.code_theme = LIGHT_THEME if light else DARK_THEME

        screen.ask_background(set_theme)
    return screen
