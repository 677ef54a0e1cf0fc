"""Builds the surface: a live screen, or plain lines without a terminal."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from shepherd.cli.render.surface import Actions
from shepherd.cli.repl.completion.complete import PromptCompleter
from shepherd.cli.repl.keys import marks_pastes
from shepherd.cli.repl.plain import PlainSurface
from shepherd.cli.repl.prompt import Prompt, open_history
from shepherd.cli.repl.screen import Screen
from shepherd.cli.repl.window.attention import Attention, read_focus_events
from shepherd.cli.repl.window.colours import can_ask
from shepherd.cli.repl.window.output import terminal_output
from shepherd.cli.terminal.paint import Painter
from shepherd.config.terminal import TerminalSection

LIGHT_THEME, DARK_THEME = "ansi_light", "ansi_dark"
LIGHT_BACKGROUNDS = ("7", "15")
"""The numbers of light colours in COLORFGBG."""


def can_redraw(env: Mapping[str, str]) -> bool:
    """Whether input and output are a terminal that understands cursor movements."""
    if env.get("TERM", "") in ("", "dumb", "unknown"):
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def code_theme(name: str, env: Mapping[str, str]) -> str:
    """The Pygments style; for `auto`, the terminal's own colours on its background."""
    if name != "auto":
        return name
    background = env.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT_THEME if background in LIGHT_BACKGROUNDS else DARK_THEME


def build_surface(
    terminal: TerminalSection,
    history_file: Path,
    completer: PromptCompleter,
    actions: Actions,
    place: str,
) -> Screen | PlainSurface:
    """The surface that fits this terminal; `place` is in the title of its window."""
    encoding = sys.stdout.encoding or "utf-8"
    if not can_redraw(os.environ):
        return PlainSurface(Painter(styled=False, encoding=encoding), actions)
    theme = code_theme(terminal.code_theme, os.environ)
    painter = Painter(encoding=encoding, code_theme=theme)
    prompt = Prompt(
        open_history(history_file),
        completer,
        painter.glyphs.user,
        bursts_are_pastes=not marks_pastes(os.environ),
    )
    title = f"Shepherd: {place}" if terminal.title else ""
    read_focus_events()
    screen = Screen(
        painter,
        prompt,
        actions,
        Attention(terminal_output(painter), os.environ, title=title, alerts=terminal.notify),
        vi_mode=terminal.edit_mode == "vi",
    )
    if terminal.code_theme == "auto" and can_ask(os.environ):

        def set_theme(*, light: bool) -> None:
            painter.code_theme = LIGHT_THEME if light else DARK_THEME

        screen.ask_background(set_theme)
    return screen


class WorkQueue:
    """Messages and commands in the order in which they were sent.

    `handle` runs one; `interrupted` is called if it was stopped, `idle` when the queue is empty.
    """

    def __init__(
        self,
        handle: Callable[[str], Awaitable[None]],
        interrupted: Callable[[], None],
        idle: Callable[[], None],
    ) -> None:
        self.waiting: list[str] = []
        self._is_held = False
        self._handle = handle
        self._interrupted = interrupted
        self._idle = idle
        self._arrived = asyncio.Event()
        self._current: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether an entry is running."""
        return self._current is not None

    def add(self, text: str) -> None:
        """Put `text` at the end, or before the texts that `hold` keeps back; these follow it."""
        self.waiting.insert(0 if self._is_held else len(self.waiting), text)
        self._is_held = False
        self._arrived.set()

    def hold(self, texts: list[str]) -> None:
        """Keep `texts` until the next one is added."""
        self.waiting += texts
        self._is_held = bool(self.waiting)

    def put_first(self, texts: list[str]) -> None:
        """Put `texts` at the front."""
        if texts:
            self.waiting[:0] = texts
            self._arrived.set()

    def stop(self) -> list[str]:
        """Stop the running entry; returns the waiting ones, which are dropped too."""
        if self._current is None or self._current.cancelling():
            return []
        waiting, self.waiting = self.waiting, []
        self._current.cancel()
        return waiting

    async def run(self) -> None:
        """Run entries until cancelled; raises the errors of `handle`."""
        while True:
            while self.waiting and not self._is_held:
                await self._do(self.waiting.pop(0))
            self._arrived.clear()
            self._idle()
            await self._arrived.wait()

    async def _do(self, text: str) -> None:
        task = self._current = asyncio.ensure_future(self._run_one(text))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        finally:
            self._current = None
        if task.cancelled():
            self._interrupted()
        else:
            task.result()

    async def _run_one(self, text: str) -> None:
        await self._handle(text)
