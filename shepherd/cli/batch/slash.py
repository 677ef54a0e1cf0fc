"""The question of `-e` that is a slash command."""

from pathlib import Path

from shepherd.cli.terminal.errors import UsageError
from shepherd.conversation.commands.table import (
    COMMANDS,
    TERMINAL_COMMANDS,
    ConversationCommand,
    find_command,
)
from shepherd.conversation.conversation import Conversation
from shepherd.knowledge.commands import parse_line
from shepherd.tools.text import one_line
from shepherd.validation import nearest

MAX_NAME = 40


def question_command(
    conversation: Conversation, question: str
) -> tuple[ConversationCommand, str] | None:
    """The command that a question calls, and its argument; None for a message to the model.

    Raises UsageError for a command that needs the terminal, and for an unknown one. Custom
    commands, prompts of MCP servers, and paths such as `/etc` are messages.
    """
    call, line = find_command(question), parse_line(question)
    if call is not None or line is None or _is_message(conversation, question, line[0]):
        return call
    name = one_line(line[0])[:MAX_NAME]
    if line[0] in TERMINAL_COMMANDS:
        other = TERMINAL_COMMANDS[line[0]]
        advice = f"use `{other}` instead" if other else "start `shepherd` and type it there"
        raise UsageError(f"/{name} works only in the interactive terminal; {advice}.")
    names = [*COMMANDS, *(str(c["name"]) for c in conversation.knowledge.command_list())]
    similar = nearest(line[0], names, cutoff=0.5)
    advice = f"did you mean /{similar}?" if similar else f"there are /{', /'.join(names)}."
    raise UsageError(f"There is no command /{name}; {advice}")


def _is_message(conversation: Conversation, question: str, name: str) -> bool:
    knowledge, servers = conversation.knowledge, conversation.servers
    return (
        any(command["name"] == name for command in knowledge.command_list())
        or (servers is not None and servers.is_named_in(question))
        or Path("/", name).exists()
    )
