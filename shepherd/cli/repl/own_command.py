"""Runs a line that begins with `!`, and shows its output."""

import asyncio
from dataclasses import dataclass

from rich.text import Text

from shepherd.cli.render.renderer import EXPAND_HINT, Renderer
from shepherd.cli.render.surface import Surface
from shepherd.cli.render.tool_view import counted
from shepherd.cli.terminal.paint import Piece
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.cli.terminal.secrets import redact
from shepherd.conversation.own_commands import ALONE, SIGN, OwnCommand, OwnCommands

MAX_LINES = 40
"""The last lines of an output that stay on the screen."""


def is_own_command(text: str) -> bool:
    """Whether the user's text is a command; text after a space is a message."""
    return text.startswith(SIGN) and bool(text.lstrip(SIGN).strip())


@dataclass(frozen=True, slots=True)
class OwnCommandRunner:
    """Runs `!LINE`, whose output the model reads with the next prompt, and `!!LINE`."""

    commands: OwnCommands
    surface: Surface
    renderer: Renderer

    async def run(self, text: str) -> None:
        """Run the command in `text`; raises ShepherdError."""
        shared = not text.startswith(ALONE)
        line = text.removeprefix(ALONE).removeprefix(SIGN).strip()
        self.renderer.user(redact(text))
        self.renderer.activity.start(f"running {one_line(redact(line), 40)}")
        try:
            command = await self.commands.run(line, self.renderer, shared=shared)
        except asyncio.CancelledError:
            if self.commands.interrupted is not None:
                self._show(self.commands.interrupted)
            raise
        finally:
            self.renderer.end_output("")
        self._show(command)

    def _show(self, command: OwnCommand) -> None:
        lines = sanitize(command.output).split("\n") if command.output else []
        visible = lines[-MAX_LINES:]
        if len(lines) > len(visible):
            earlier = counted(len(lines) - len(visible), "earlier line")
            hint = f"; {EXPAND_HINT}" if self.surface.has_live_area else ""
            visible.insert(0, f"({earlier}{hint})")
        if visible:
            self.surface.show(
                Piece(Text("\n".join(f"  {line}" for line in visible)), soft_wrap=True)
            )
        if not command.ok:
            self.renderer.notice(f"({command.end})", "warn")
        elif not visible:
            self.renderer.notice("(no output)")
        self.renderer.results.add(f"{SIGN}{one_line(redact(command.line), 200)}", command.output)
