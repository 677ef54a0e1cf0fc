"""The commands of the terminal: those of the conversation, and its own."""

from shepherd.cli.repl.commands.base import Command, CommandContext, CommandTable
from shepherd.cli.repl.commands.model import ModelCommands
from shepherd.cli.repl.commands.pickers import Pickers
from shepherd.cli.repl.commands.session import TerminalCommands
from shepherd.cli.terminal.sanitize import one_line
from shepherd.knowledge.commands import IMPROVE, INIT, INIT_SUMMARY
from shepherd.plugins import Group, Plugins

__all__ = ["Command", "CommandContext", "CommandTable", "fill_table", "message_command"]

MAX_TEXT = 120
_IN_ORDER = (
    *("help", "tools", "approve", "permissions", "thinking", "usage", "stats", "exit", "quit"),
    *("model", "provider", "system", "context", "clear", "save", "export", "compact", "remember"),
    *("undo", "redo", "diff", "rewind", "tree", "resume", "memory", "skills", INIT, "jobs", "mcp"),
)
"""The order of the help and of the completion."""


def fill_table(table: CommandTable, context: CommandContext) -> None:
    """Put all commands into `table`, in the order of the help."""
    own = [
        *Pickers(context).commands(),
        *ModelCommands(context).commands(),
        *TerminalCommands(context, table).commands(),
        Command(INIT, f"[{IMPROVE}]", INIT_SUMMARY, _not_run, lambda: (IMPROVE,), is_message=True),
    ]
    table.extend(sorted(own, key=lambda command: _IN_ORDER.index(command.name)))
    _add_plugins(table, context)
    _add_custom_commands(table, context)


def _add_plugins(table: CommandTable, context: CommandContext) -> None:
    """Add the commands of plugins after the others; a notice names unusable ones."""
    conversation = context.conversation
    plugins = Plugins(conversation.config.plugins.disabled, conversation.config.plugins.settings)
    # what a plugin names is a function that makes commands
    plugins.use(Group.COMMANDS, lambda make: table.extend(make(context)), conversation.notices.tell)


def _add_custom_commands(table: CommandTable, context: CommandContext) -> None:
    """Add custom commands after all others; a notice names those whose name is taken."""
    conversation = context.conversation
    for command in conversation.knowledge.commands:
        if table.find(command.name) is None:
            owner = "your command" if command.of_user else "the project's command"
            summary = f"{command.summary} ({owner})"
            table.extend([message_command(command.name, command.hint, summary)])
        else:
            conversation.notices.tell(
                f"The custom command {command.name}.md is not used: /{command.name} is Shepherd's."
            )


def message_command(name: str, hint: str, summary: str) -> Command[str]:
    """A command whose line the conversation expands."""
    usage, summary = one_line(hint, MAX_TEXT), one_line(summary, MAX_TEXT)
    return Command(name, usage, summary, _not_run, is_message=True)


async def _not_run(argument: str) -> None:
    """Does nothing, as it is not called: the line is sent as a message."""
