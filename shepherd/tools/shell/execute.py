"""Runs commands."""

import asyncio
import shlex
from pathlib import Path
from typing import Annotated

from msgspec.structs import replace
from pydantic import AfterValidator, Field, WithJsonSchema

from shepherd import errors, events, own_programs
from shepherd.tools.access import EXECUTE_COMMAND, Access, AccessKind, Claim
from shepherd.tools.permissions.content import holds_private_key
from shepherd.tools.program import Program, safe_environment
from shepherd.tools.shell.accesses import argv_accesses, line_accesses
from shepherd.tools.shell.background import BackgroundCommand, BackgroundCommands
from shepherd.tools.shell.output import LINES, CappedOutput, LiveTail
from shepherd.tools.shell.process import ConfinedProgram, Exit, merged
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult, Traits

MAX_TIMEOUT = 3600.0


def _check_command(command: str | list[str]) -> str | list[str]:
    """The command; raises ValueError if it has no program, or a word that no program can get."""
    words = [command] if isinstance(command, str) else command
    if not words or not words[0].strip():
        raise ValueError("empty")
    if any("\0" in word for word in words):
        raise ValueError("has a NUL character")
    return command


class ExecuteArguments(Arguments):
    """The command: a shell runs a string; a list of words runs without a shell."""

    command: Annotated[
        str | list[str], AfterValidator(_check_command), WithJsonSchema({"type": "string"})
    ]
    cwd: str = "."
    timeout: Annotated[float, Field(ge=0, le=MAX_TIMEOUT)] = 0
    background: Annotated[bool, Field(description="Don't wait for its end; see check_command.")] = (
        False
    )
    live: Annotated[
        bool,
        Field(description="Share files as it runs."),
    ] = False

    @property
    def line(self) -> str:
        """The command as a user reads it."""
        return self.command if isinstance(self.command, str) else shlex.join(self.command)


class ExecuteCommand(Tool[ExecuteArguments]):
    """Runs a shell line, or a program with its arguments."""

    name = EXECUTE_COMMAND
    traits = Traits("execute", "Run", shows_end=True)
    description = "Run a shell command."
    arguments = ExecuteArguments
    starts_programs = True
    later_arguments = frozenset({"background", "live"})

    def accesses(self, arguments: ExecuteArguments, context: ToolContext) -> list[Access]:
        """What the command runs, reads and writes, as far as its words say."""
        cwd = self.start_directory(arguments, context)
        command = arguments.command
        if isinstance(command, str):
            accesses = line_accesses(command, cwd)
        else:
            accesses = argv_accesses(command, cwd)
        if cwd.is_relative_to(context.cwd):
            return accesses
        # rules cover commands in this directory; elsewhere the same words may do something else
        return [Access(AccessKind.READ, str(cwd)), *map(_without_certainty, accesses)]

    def preview(self, arguments: ExecuteArguments, context: ToolContext) -> str:
        cwd = self.start_directory(arguments, context)
        text = arguments.line if cwd == context.cwd else f"{arguments.line}\n(in {cwd})"
        return f"{text}\n(in the background)" if arguments.background else text

    def goes_on(self, arguments: ExecuteArguments) -> bool:
        return arguments.background

    def is_live(self, arguments: ExecuteArguments) -> bool:
        return arguments.background and arguments.live

    def deadline(self, arguments: ExecuteArguments, context: ToolContext) -> float | None:
        return None  # `run` stops the process itself, and still returns the output

    def start_directory(self, arguments: ExecuteArguments, context: ToolContext) -> Path:
        return context.resolve(arguments.cwd or ".")

    async def run(self, arguments: ExecuteArguments, context: ToolContext) -> ToolResult:
        """Run the command to its end, or start it in the background."""
        cwd = self.start_directory(arguments, context)
        program = Program(_argv(arguments.command), cwd, _environment(context, cwd))
        if arguments.background:
            return await _start(arguments, context, program)
        timeout = arguments.timeout or context.timeout
        confined = ConfinedProgram(program, context.confinement, timeout, arguments.cwd)
        # most output is on standard output, but errors must not be crowded out by it
        out = CappedOutput(context.output_bytes * 3 // 4, context.spill_dir)
        err = CappedOutput(context.output_bytes // 4, context.spill_dir)
        tail = LiveTail(context.on_event, context.secrets)
        try:
            exit_ = await confined.run(
                lambda data: out.feed(data) and tail.out(data),
                lambda data: err.feed(data) and tail.err(data),
            )
        except asyncio.CancelledError:  # what it has printed is all that is known of it
            if text := _output(out.text(), err.text()):
                text = context.without_secrets(text)
                context.on_event(events.Notice(text, events.Topic.OUTPUT))
            raise
        finally:
            tail.close()
            texts = out.text(), err.text()  # also closes their files
        ok = exit_.code == 0 and not exit_.timed_out
        lines = [_result(*texts, exit_, timeout), *(f"[{loss}]" for loss in confined.losses)]
        return ToolResult("\n".join(lines), ok=ok, refusal=confined.refusal(*texts, exit_))


async def _start(arguments: ExecuteArguments, context: ToolContext, program: Program) -> ToolResult:
    """Start a command that goes on after its call."""
    if context.background is None:
        raise errors.ToolError("there are no background commands here; run it without `background`")
    if isinstance(arguments.command, str):  # of words, a missing program would be the shell's error
        program = replace(program, argv=merged(program.argv))
    confined = ConfinedProgram(
        program,
        context.confinement,
        arguments.timeout or context.background.max_seconds,
        arguments.cwd,
    )
    folder, secrets, hand_over = context.spill_dir, context.secrets, context.hand_over
    started = await context.background.start(confined, arguments.line, folder, secrets, hand_over)
    return command_result(started, context.output_bytes)


def _environment(context: ToolContext, cwd: Path) -> dict[str, str]:
    """The variables of the command: without those that the sandbox hides, such as its secrets."""
    variables = {**safe_environment(), **context.environment, "PWD": str(cwd)}
    hidden = context.confinement.hidden_variables if context.confinement else frozenset[str]()
    return {name: value for name, value in variables.items() if name not in hidden}


def _without_certainty(access: Access) -> Access:
    """The access, without certainty if it is a command that a rule could cover."""
    exact_command = access.kind is AccessKind.SHELL and access.claim is Claim.EXACT
    return replace(access, claim=Claim.OPAQUE) if exact_command else access


def _argv(command: str | list[str]) -> list[str]:
    """The words to start; a text is a line for the shell, for bash if it is there."""
    if isinstance(command, list):
        return command
    shell = own_programs.own_program("bash") or "/bin/sh"
    return [shell, "-c", command]


def _result(out: str, err: str, exit_: Exit, timeout: float) -> str:
    """The output, and how the command ended if it failed."""
    parts = [_output(out, err) or "(no output)"]
    if exit_.timed_out:
        parts.append(f"[timed out after {timeout:g} s]")
    elif exit_.code != 0:
        parts.append(f"[exit code {exit_.code}]")
    return "\n".join(parts)


def _output(out: str, err: str) -> str:
    """The output, then the errors under `[stderr]`."""
    parts = [out.rstrip("\n")] if out.strip("\n") else []
    if err.strip("\n"):
        parts += ["[stderr]", err.rstrip("\n")]
    return "\n".join(parts)


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
    traits = Traits(shows_end=True)
    description = "Output of a background command; without id, all."
    arguments = CheckArguments
    polls = True

    def accesses(self, arguments: CheckArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.PROCESS, arguments.id)] if arguments.kill else []

    def deadline(self, arguments: CheckArguments, context: ToolContext) -> float | None:
        return None  # `wait` has a limit of its own

    async def run(self, arguments: CheckArguments, context: ToolContext) -> ToolResult:
        """The output and the state of a command, after waiting for it or ending it."""
        commands = context.background
        if commands is None:
            raise errors.ToolError("there are no background commands here")
        if not arguments.id.strip():
            return ToolResult(command_list(commands))
        command = commands.find(arguments.id)
        if arguments.kill:
            await commands.kill(command)
        elif arguments.wait:
            await _wait(commands, command, arguments.wait, context.on_event)
        return command_result(command, context.output_bytes, arguments.offset)


async def _wait(
    commands: BackgroundCommands,
    command: BackgroundCommand,
    seconds: float,
    on_event: events.EventCallback,
) -> None:
    """Wait for the end of a command; the user sees its last lines meanwhile."""
    clock = asyncio.get_running_loop().time
    deadline, sent_to, goes_on = clock() + seconds, command.read_to, True
    while command.is_running and goes_on and clock() < deadline:
        await commands.wait(command, min(TAIL_SECONDS, deadline - clock()))
        if command.is_running and command.log.end > sent_to:
            sent_to = command.log.end
            lines = command.log.tail(TAIL_BYTES).text.rstrip("\n").split("\n")
            text = "\n".join(lines[-LINES:])
            # False: the user stops the wait
            goes_on = on_event(events.Notice(text, events.Topic.OUTPUT))


def command_list(commands: BackgroundCommands) -> str:
    """A line for each command."""
    lines = [f"{command.title}: {command.report}" for command in commands.all]
    return "\n".join(lines) or "(no background commands)"


def command_result(command: BackgroundCommand, limit: int, offset: int | None = None) -> ToolResult:
    """The state of a command, and its output from `offset` on or since the last check."""
    log = command.log
    command.is_known = command.is_known or not command.is_running
    if offset is None:
        begin = command.read_to  # of more than `limit` bytes, the last ones tell how it stands
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
    parts += [f"[{text}]" for text in (log.problem, command.outcome) if text]
    parts += [command.note] if command.note else []
    failed = command.exit is not None and command.exit.code != 0 and not command.was_killed
    return ToolResult("\n".join(parts), ok=not (failed or command.error))
