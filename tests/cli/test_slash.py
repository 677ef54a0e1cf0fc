"""The table of the terminal's commands, as other frontends know it."""

import io
from pathlib import Path

from shepherd.cli.render.renderer import Renderer
from shepherd.cli.render.status import Status
from shepherd.cli.render.surface import Actions
from shepherd.cli.repl.commands import CommandContext, CommandTable, fill_table
from shepherd.cli.repl.plain import PlainSurface
from shepherd.cli.terminal.paint import Painter
from shepherd.config.load import load_config
from shepherd.conversation.build import open_conversation
from shepherd.conversation.commands.table import COMMANDS, TERMINAL_COMMANDS
from shepherd.conversation.session_start import SessionStart


async def test_each_command_of_the_terminal_is_known_elsewhere(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    (tmp_path / "script").write_text("text: x")
    overrides = {"model.name": f"script:{tmp_path / 'script'}", "terminal.save_sessions": False}
    config = load_config(tmp_path, env, overrides)
    actions = Actions()
    surface = PlainSurface(Painter(styled=False), actions, io.StringIO(), io.StringIO())
    status = Status()
    async with open_conversation(config, env, tmp_path, SessionStart()) as conversation:
        renderer = Renderer(surface, status)
        context = CommandContext(conversation, surface, renderer, status, lambda: None)
        table = CommandTable()
        fill_table(table, context)
    names = {command.name for command in table if not command.is_message}
    assert names == {*COMMANDS, *TERMINAL_COMMANDS}
