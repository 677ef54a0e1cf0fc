"""All commands by their names."""

import re

from shepherd.conversation.commands.base import Command
from shepherd.conversation.commands.own import OWN_COMMANDS
from shepherd.conversation.commands.past import PAST_COMMANDS
from shepherd.conversation.commands.present import PRESENT_COMMANDS
from shepherd.conversation.own_commands import ALONE, SIGN
from shepherd.errors import InvalidRequestError

COMMANDS = {command.name: command for command in (*PRESENT_COMMANDS, *PAST_COMMANDS)}

TERMINAL_COMMANDS = {
    "exit": "",
    "export": "",
    "help": "shepherd --help",
    "memory": "shepherd memory",
    "model": "shepherd --model",
    "provider": "shepherd provider",
    "quit": "",
    "resume": "shepherd --resume",
    "save": "",
    "stats": "",
    "system": "shepherd --system",
    "thinking": "shepherd --thinking",
    "tools": "",
    "usage": "",
}
"""The commands that only the terminal has, each with a shell command that does the same, or ""."""

_COMMAND = re.compile(r"/([a-z][a-z-]*)(?:\s+(.*))?", re.DOTALL)


def find_command(text: str) -> tuple[Command, str] | None:
    """The command that a text calls, and its argument; None for any other text."""
    match = _COMMAND.fullmatch(text.strip())
    command = COMMANDS.get(match[1]) if match else None
    return (command, (match[2] or "").strip()) if match and command else None


def named_command(text: str) -> tuple[Command, str]:
    """The same for text that must be a command, which may be `!LINE` or `!!LINE` too.

    Raises InvalidRequestError if there is no such command.
    """
    line = text.strip()
    if line.startswith(SIGN):
        sign = ALONE if line.startswith(ALONE) else SIGN
        return OWN_COMMANDS[sign], line.removeprefix(sign).strip()
    call = find_command(text)
    if call is None:
        names = ", ".join(f"/{name}" for name in COMMANDS)
        raise InvalidRequestError(f"There is no command {text.strip()[:40]}; there are {names}.")
    return call
