"""Choosing and building the surface: a live screen, or plain lines where there is none."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from shepherd.cli.repl.commands import CommandTable
from shepherd.cli.repl.complete import PromptCompleter
from shepherd.cli.repl.paint import Painter
from shepherd.cli.repl.plain import PlainSurface
from shepherd.cli.repl.prompt import Prompt, open_history
from shepherd.cli.repl.screen import Screen
from shepherd.cli.repl.surface import Actions
from shepherd.cli.repl.typed_ahead import marks_pastes
from shepherd.config.paths import Paths
from shepherd.config.sections import TerminalSection


def can_redraw(env: Mapping[str, str]) -> bool:
    """Whether both ends are a terminal that understands cursor movements."""
    if env.get("TERM", "") in ("", "dumb", "unknown"):
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def build_surface(
    terminal: TerminalSection, paths: Paths, cwd: Path, actions: Actions, table: CommandTable
) -> Screen | PlainSurface:
    """The surface that fits the terminal at hand; `table` may still be empty."""
    encoding = sys.stdout.encoding or "utf-8"
    if not can_redraw(os.environ):
        return PlainSurface(Painter(styled=False, encoding=encoding), actions)
    painter = Painter(encoding=encoding, code_theme=terminal.code_theme)
    prompt = Prompt(
        open_history(paths.history_file),
        PromptCompleter(table, cwd),
        painter.glyphs.user,
        bursts_are_pastes=not marks_pastes(os.environ),
    )
    return Screen(painter, prompt, actions, vi_mode=terminal.edit_mode == "vi")
