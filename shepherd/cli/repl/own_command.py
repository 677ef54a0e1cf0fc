"""Runs a line that begins with `!`, and shows its output."""

import asyncio

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


async def run_own_command(
    text: str, commands: OwnCommands, surface: Surface, renderer: Renderer
) -> None:
    """Run `!LINE`, whose output the model reads with the next prompt, or `!!LINE`.

    Raises ShepherdError.
    """
    line = text.removeprefix(ALONE).removeprefix(SIGN).strip()
    renderer.user(redact(text))
    renderer.activity.start(f"running {one_line(redact(line), 40)}")
    try:
        command = await commands.run(line, renderer, shared=not text.startswith(ALONE))
    except asyncio.CancelledError:
        if commands.interrupted is not None:
            _show(commands.interrupted, surface, renderer)
        raise
    finally:
        renderer.end_output("")
    _show(command, surface, renderer)


def _show(command: OwnCommand, surface: Surface, renderer: Renderer) -> None:
    lines = sanitize(command.output).split("\n") if command.output else []
    visible = lines[-MAX_LINES:]
    if len(lines) > len(visible):
        earlier = counted(len(lines) - len(visible), "earlier line")
        hint = f"; {EXPAND_HINT}" if surface.has_live_area else ""
        visible.insert(0, f"({earlier}{hint})")
    if visible:
        text = Text("\n".join(f"  {line}" for line in visible))
        surface.show(Piece(text, soft_wrap=True))
    if not command.ok:
        renderer.notice(f"({command.end})", "warn")
    elif not visible:
        renderer.notice("(no output)")
    renderer.results.add(f"{SIGN}{one_line(redact(command.line), 200)}", command.output)
