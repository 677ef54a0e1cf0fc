"""All commands by their names."""

import re

from shepherd.conversation.commands.base import Command
from shepherd.conversation.commands.past import PAST_COMMANDS
from shepherd.conversation.commands.present import PRESENT_COMMANDS
from shepherd.errors import InvalidRequestError

COMMANDS = {command.name: command for command in (*PRESENT_COMMANDS, *PAST_COMMANDS)}

_COMMAND = re.compile(r"/([a-z][a-z-]*)(?:\s+(.*))?", re.DOTALL)


def find_command(text: str) -> tuple[Command, str] | None:
    """The command that a text calls, and its argument; None for any other text."""
    match = _COMMAND.fullmatch(text.strip())
    command = COMMANDS.get(match[1]) if match else None
    return (command, (match[2] or "").strip()) if match and command else None


def named_command(text: str) -> tuple[Command, str]:
    """`find_command` that raises InvalidRequestError if there is no such command."""
    call = find_command(text)
    if call is None:
        names = ", ".join(f"/{name}" for name in COMMANDS)
        raise InvalidRequestError(f"There is no command {text.strip()[:40]}; there are {names}.")
    return call
