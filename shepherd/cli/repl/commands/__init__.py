"""Slash commands: one table that is also the help and the completion."""

import re
from collections.abc import Callable, Iterable
from functools import partial

from shepherd.cli.repl.commands.base import Command, CommandContext, CommandTable, parse_command
from shepherd.cli.repl.commands.compaction import compaction_commands
from shepherd.cli.repl.commands.conversation import conversation_commands
from shepherd.cli.repl.commands.history import history_commands
from shepherd.cli.repl.commands.jobs import job_commands
from shepherd.cli.repl.commands.knowledge import add_custom_commands, knowledge_commands
from shepherd.cli.repl.commands.mcp import mcp_commands, prompts, resources
from shepherd.cli.repl.commands.memory import memory_commands
from shepherd.cli.repl.commands.model import model_commands
from shepherd.cli.repl.commands.provider import provider_commands
from shepherd.cli.repl.commands.resume import resume_commands
from shepherd.cli.repl.commands.view import view_commands
from shepherd.plugins import Group, Plugins

__all__ = [
    "Command",
    "CommandContext",
    "CommandTable",
    "fill_table",
    "parse_command",
    "with_slash_commands",
]

_SHELL_COMMAND = re.compile(r"`shepherd (provider|memory) ")


def with_slash_commands(text: str) -> str:
    """The text with shell commands replaced by this prompt's commands, if there are any."""
    return _SHELL_COMMAND.sub(r"`/\1 ", text)


def fill_table(table: CommandTable, context: CommandContext) -> None:
    """Put all commands into `table`, in the order of the help."""
    table.extend(view_commands(context, table))
    table.extend(model_commands(context))
    table.extend(provider_commands(context))
    table.extend(conversation_commands(context))
    table.extend(compaction_commands(context))
    table.extend(history_commands(context))
    table.extend(resume_commands(context))
    table.extend(memory_commands(context))
    table.extend(knowledge_commands(context))
    table.extend(job_commands(context))
    table.extend(mcp_commands(context))
    table.prompts, table.resources = partial(prompts, context), partial(resources, context)
    _add_plugins(table, context)
    add_custom_commands(table, context)


def _add_plugins(table: CommandTable, context: CommandContext) -> None:
    """Add the commands of plugins after the others; a notice names unusable ones."""

    def add(make_commands: Callable[[CommandContext], Iterable[Command]]) -> None:
        table.extend(make_commands(context))

    conversation = context.conversation
    plugins = Plugins(conversation.config.plugins.disabled)
    plugins.use(Group.COMMANDS, add, conversation.notices.tell)
