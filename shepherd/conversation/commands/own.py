"""The user's own command lines, `!LINE` and `!!LINE`, for frontends without a terminal."""

from shepherd.config.choices import ApproveMode
from shepherd.conversation.commands.base import Command
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.own_commands import ALONE, EXECUTE, SIGN, OwnCommand
from shepherd.errors import InvalidRequestError
from shepherd.events import EventCallback, ignore_events
from shepherd.tools.shell.accesses import line_accesses


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
    if not config.model.tools or EXECUTE in config.tools.disabled:
        return "commands are switched off in this conversation"
    if policy.mode is ApproveMode.NONE:
        return "the approval mode is none"
    if any(policy.denies(EXECUTE, access) for access in line_accesses(line, conversation.cwd)):
        return "a rule denies it"
    return ""


async def _shared(conversation: Conversation, argument: str) -> str:
    return _text(conversation, await run_own_command(conversation, argument, shared=True))


async def _alone(conversation: Conversation, argument: str) -> str:
    return _text(conversation, await run_own_command(conversation, argument, shared=False))


def _text(conversation: Conversation, command: OwnCommand) -> str:
    """The output and the end; programs and other clients read no secret of the environment."""
    end = "" if command.ok else f"({command.end})"
    text = "\n".join(part for part in (command.output, end) if part) or "(no output)"
    return conversation.own_commands.redacted(text)


OWN_COMMANDS = {
    SIGN: Command(SIGN, "Run a command of yours", _shared, "COMMAND", bool),
    ALONE: Command(ALONE, "Run one without the model's knowledge", _alone, "COMMAND", bool),
}  # fmt: skip
