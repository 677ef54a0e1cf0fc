"""The commands of a conversation for frontends without a terminal; their output is text."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shepherd.cli.repl.context_view import measure_context
from shepherd.conversation.conversation import Conversation

_COMMAND = re.compile(r"/([a-z][a-z-]*)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command; `run` gets the text after its name, and returns the text to show.

    `hint` describes that text, "" if there is none.
    """

    name: str
    description: str
    run: Callable[[Conversation, str], Awaitable[str]]
    hint: str = ""


def find_command(text: str) -> tuple[Command, str] | None:
    """The command that a text calls, and its argument; None for any other text."""
    match = _COMMAND.fullmatch(text.strip())
    command = COMMANDS.get(match[1]) if match else None
    return (command, match[2] or "") if match and command else None


async def _context(conversation: Conversation, _argument: str) -> str:
    shares = await measure_context(conversation.session, await conversation.backend())
    size = f" of {shares.size}" if shares.size else ""
    rows = [
        ("system message", shares.system),
        ("tools", shares.tools),
        ("your messages", shares.user),
        ("answers", shares.answers),
        ("results", shares.results),
    ]
    lines = [f"- {name}: {count}" for name, count in rows]
    return "\n".join([f"{shares.used}{size} tokens:", *lines])


async def _clear(conversation: Conversation, _argument: str) -> str:
    conversation.clear()
    return "The conversation starts afresh."


COMMANDS = {
    command.name: command
    for command in (
        Command("context", "What fills the context", _context),
        Command("clear", "Forget the conversation", _clear),
    )
}
