"""Slash commands: one table that is also the help and the completion."""

from shepherd.cli.repl.commands.base import Command, CommandContext, CommandTable, parse_command
from shepherd.cli.repl.commands.conversation import conversation_commands
from shepherd.cli.repl.commands.memory import memory_commands
from shepherd.cli.repl.commands.model import model_commands
from shepherd.cli.repl.commands.provider import provider_commands
from shepherd.cli.repl.commands.resume import resume_commands
from shepherd.cli.repl.commands.view import view_commands

__all__ = ["Command", "CommandContext", "CommandTable", "fill_table", "parse_command"]


def fill_table(table: CommandTable, context: CommandContext) -> None:
    """Put all commands into `table`, in the order of the help."""
    table.extend(view_commands(context, table))
    table.extend(model_commands(context))
    table.extend(provider_commands(context))
    table.extend(conversation_commands(context))
    table.extend(resume_commands(context))
    table.extend(memory_commands(context))
