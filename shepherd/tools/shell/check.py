"""Reads the output of background commands, and ends them."""

import asyncio
from typing import Annotated

from pydantic import Field, WithJsonSchema

from shepherd.errors import ToolError
from shepherd.events import CallbackEvent, EventCallback, Topic
from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.permissions.content import holds_private_key
from shepherd.tools.shell.background import BackgroundCommand, BackgroundCommands

MAX_WAIT = 600.0
TAIL_SECONDS, TAIL_BYTES = 0.5, 4096


class CheckArguments(Arguments):
    """The command, the part of its output, and whether to wait for its end or to end it."""

    id: str = ""
    offset: Annotated[
        int | None,
        Field(ge=0),
        WithJsonSchema({"description": "Else what is new.", "type": "integer"}),
    ] = None
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT, description="Seconds.")] = 0
    kill: bool = False


class CheckCommand(Tool[CheckArguments]):
    """Returns output from an offset, or what is new; without an id, a list of all commands."""

    name = "check_command"
    description = "Output of a background command; without id, all."
    arguments = CheckArguments
    polls = True

    def accesses(self, arguments: CheckArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.PROCESS, arguments.id)] if arguments.kill else []

    def deadline(self, arguments: CheckArguments, context: ToolContext) -> float | None:
        return None  # `wait` has a limit of its own

    async def run(self, arguments: CheckArguments, context: ToolContext) -> ToolResult:
        commands = context.background
        if commands is None:
            raise ToolError("there are no background commands here")
        if not arguments.id.strip():
            return ToolResult(command_list(commands))
        command = commands.find(arguments.id)
        if arguments.kill:
            await commands.kill(command)
        elif arguments.wait:
            await _wait(commands, command, arguments.wait, context.on_event)
        return command_result(command, context.output_bytes, arguments.offset)


async def _wait(
    commands: BackgroundCommands, command: BackgroundCommand, seconds: float, tell: EventCallback
) -> None:
    """Wait for the end of a command; the user sees its last lines meanwhile."""
    from shepherd.tools.shell.tail import LINES

    clock = asyncio.get_running_loop().time
    end, end_before, goes_on = clock() + seconds, command.read_to, True
    while command.is_running and goes_on and clock() < end:
        await commands.wait(command, min(TAIL_SECONDS, end - clock()))
        if command.is_running and command.log.end > end_before:
            end_before = command.log.end
            lines = command.log.tail(TAIL_BYTES).text.rstrip("\n").split("\n")
            text = "\n".join(lines[-LINES:])
            goes_on = tell(CallbackEvent.SYSTEM, text, Topic.OUTPUT, "")


def command_list(commands: BackgroundCommands) -> str:
    """A line for each command."""
    lines = [f"{command.title}: {command.state}" for command in commands.all]
    return "\n".join(lines) or "(no background commands)"


def command_result(command: BackgroundCommand, limit: int, offset: int | None = None) -> ToolResult:
    """The state of a command, and its output from `offset` on or since the last check."""
    log = command.log
    command.is_known = command.is_known or not command.is_running
    if offset is None:
        begin = command.read_to
        excerpt = log.tail(limit) if log.end - begin > limit else log.read(begin, limit)
    else:
        begin = offset
        excerpt = log.read(offset, limit)
    command.read_to = excerpt.end
    place = f"bytes {excerpt.begin}-{excerpt.end} of {log.end}"
    parts = [f"[{command.title}: {command.state}; {place}]"]
    if excerpt.begin > begin:
        what = "are not kept" if excerpt.begin == log.begin else "are left out; offset reads them"
        parts.append(f"[bytes {begin}-{excerpt.begin} {what}]")
    parts.append(excerpt.text.rstrip("\n") or "(no new output)")
    if log.key_sign and not holds_private_key(excerpt.text):  # a part of it is asked about, too
        parts.append(f"[there is a private key in the output: {log.key_sign}]")
    parts += [text for text in (log.problem and f"[{log.problem}]", command.note) if text]
    failed = command.exit is not None and command.exit.code != 0 and not command.was_killed
    return ToolResult("\n".join(parts), ok=not (failed or command.error))
