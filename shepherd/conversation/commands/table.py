"""The one table of slash commands, and the user's own command lines, `!LINE` and `!!LINE`."""

import re
from functools import partial
from typing import TypeAlias

from shepherd.config.section import ApproveMode
from shepherd.conversation.commands.command import Command, Lines
from shepherd.conversation.commands.past import PAST_COMMANDS
from shepherd.conversation.commands.present import PRESENT_COMMANDS
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.own_commands import ALONE, SIGN, OwnCommand
from shepherd.errors import InvalidRequestError, UndoError
from shepherd.events import EventCallback, ignore_events
from shepherd.tools.access import EXECUTE_COMMAND
from shepherd.tools.shell.accesses import line_accesses

ConversationCommand: TypeAlias = Command[[Conversation, str]]

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

_COMMAND = re.compile(r"/(?P<name>[a-z][a-z-]*)(?:\s+(?P<argument>.*))?", re.DOTALL)


def find_command(text: str) -> tuple[ConversationCommand, str] | None:
    """The command that a text calls, and its argument; None for any other text."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None or match["name"] not in COMMANDS:
        return None
    return COMMANDS[match["name"]], (match["argument"] or "").strip()


def named_command(text: str) -> tuple[ConversationCommand, str]:
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


async def output_of(command: ConversationCommand, conversation: Conversation, argument: str) -> str:
    """Run a command; its output as a text, for frontends without a terminal."""
    if argument and not command.usage:  # ignoring it could do what the user did not mean
        raise InvalidRequestError(f"/{command.name} takes nothing behind it; it was not done.")
    try:
        lines = await command.run(conversation, argument)
    except UndoError as error:
        raise UndoError("\n".join([str(error), *error.details])) from error
    return "\n".join(map(str, lines or ()))


async def run_own_command(
    conversation: Conversation,
    line: str,
    on_event: EventCallback = ignore_events,
    *,
    shared: bool,
) -> OwnCommand:
    """Run a line in the user's shell; the model reads its output with the next prompt if `shared`.

    Raises InvalidRequestError where the model may not run commands either: without tools, in the
    mode `none`, and if a rule denies the line.
    """
    reason = _refusal(conversation, line)
    if reason:
        raise InvalidRequestError(f"The command was not run: {reason}.")
    return await conversation.own_commands.run(line, on_event, shared=shared)


def _refusal(conversation: Conversation, line: str) -> str:
    """The reason why a line must not run, "" if it may."""
    config, policy = conversation.config, conversation.policy
    if not line:
        return f"there is no command after {SIGN}"
    if not config.model.tools or EXECUTE_COMMAND in config.tools.disabled:
        return "commands are switched off in this conversation"
    if policy.mode is ApproveMode.NONE:
        return "the approval mode is none"
    accesses = line_accesses(line, conversation.cwd)
    if any(policy.denies(EXECUTE_COMMAND, access) for access in accesses):
        return "a rule denies it"
    return ""


async def _run_own(conversation: Conversation, argument: str, *, shared: bool) -> Lines:
    """The output and the end; programs and other clients read no secret of the environment."""
    command = await run_own_command(conversation, argument, shared=shared)
    end = "" if command.ok else f"({command.end})"
    texts = [part for part in (command.output, end) if part] or ["(no output)"]
    return [conversation.own_commands.redacted(text) for text in texts]


OWN_COMMANDS = {
    SIGN: Command(SIGN, "COMMAND", "run a command of yours",
                  partial(_run_own, shared=True), approves=bool),
    ALONE: Command(ALONE, "COMMAND", "run one without the model's knowledge",
                   partial(_run_own, shared=False), approves=bool),
}  # fmt: skip
