"""Runs commands."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from shepherd.errors import ToolError
from shepherd.own_programs import own_program
from shepherd.tools.base import Access, AccessKind, Arguments, Claim, Tool, ToolContext, ToolResult
from shepherd.tools.paths import resolve_path
from shepherd.tools.program import Program
from shepherd.tools.shell.check import command_result
from shepherd.tools.shell.environment import safe_environment

if TYPE_CHECKING:
    from shepherd.tools.shell.process import Exit

MAX_TIMEOUT = 3600.0


def _check_command(command: str | list[str]) -> str | list[str]:
    program = command if isinstance(command, str) else (command or [""])[0]
    if not program.strip():
        raise ValueError("empty")
    if any("\0" in part for part in ([command] if isinstance(command, str) else command)):
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


class ExecuteCommand(Tool[ExecuteArguments]):
    """Runs a shell line, or a program with its arguments."""

    name = "execute_command"
    description = "Run a shell command."
    arguments = ExecuteArguments
    starts_programs = True
    later_arguments = frozenset({"background"})

    def accesses(self, arguments: ExecuteArguments, context: ToolContext) -> list[Access]:
        # the reader of command lines is large, and most conversations begin without a command
        from shepherd.tools.shell.accesses import argv_accesses, line_accesses

        cwd = resolve_path(arguments.cwd or ".", context.cwd)
        command = arguments.command
        if isinstance(command, str):
            accesses = line_accesses(command, cwd)
        else:
            accesses = argv_accesses(command, cwd)
        if cwd.is_relative_to(context.cwd):
            return accesses
        # rules cover commands in this directory; elsewhere the same words may do something else
        return [Access(AccessKind.READ, str(cwd)), *map(_doubted, accesses)]

    def preview(self, arguments: ExecuteArguments, context: ToolContext) -> str:
        command = arguments.command
        line = command if isinstance(command, str) else shlex.join(command)
        cwd = resolve_path(arguments.cwd or ".", context.cwd)
        text = line if cwd == context.cwd else f"{line}\n(in {cwd})"
        return f"{text}\n(in the background)" if arguments.background else text

    def deadline(self, arguments: ExecuteArguments, context: ToolContext) -> float | None:
        return None  # `run` stops the process itself, and still returns the output

    def start_directory(self, arguments: ExecuteArguments, context: ToolContext) -> Path:
        return resolve_path(arguments.cwd or ".", context.cwd)

    async def run(self, arguments: ExecuteArguments, context: ToolContext) -> ToolResult:
        from shepherd.tools.shell.confined import ConfinedProgram
        from shepherd.tools.shell.output import CappedOutput
        from shepherd.tools.shell.tail import LiveTail

        cwd = self.start_directory(arguments, context)
        program = Program(_argv(arguments.command), cwd, _environment(context, cwd))
        if arguments.background:
            return await _start(arguments, context, program)
        timeout = arguments.timeout or context.timeout
        confined = ConfinedProgram(program, context.confinement, timeout, arguments.cwd)
        out = CappedOutput(context.output_bytes * 3 // 4, context.spill_dir)
        err = CappedOutput(context.output_bytes // 4, context.spill_dir)
        tail = LiveTail(context.on_event, context.secrets)
        try:
            exit_ = await confined.run(
                lambda data: out.feed(data) and tail.out(data),
                lambda data: err.feed(data) and tail.err(data),
            )
        finally:
            tail.close()
            texts = out.text(), err.text()
        ok = exit_.code == 0 and not exit_.timed_out
        lines = [_result(*texts, exit_, timeout), *(f"[{loss}]" for loss in confined.losses)]
        return ToolResult("\n".join(lines), ok=ok, refusal=confined.refusal(*texts, exit_))


async def _start(arguments: ExecuteArguments, context: ToolContext, program: Program) -> ToolResult:
    """Start a command that goes on after its call."""
    from shepherd.tools.shell.confined import ConfinedProgram, merged

    if context.background is None:
        raise ToolError("there are no background commands here; run it without `background`")
    if isinstance(arguments.command, str):  # of words, a missing program would be the shell's error
        program = replace(program, argv=merged(program.argv))
    confined = ConfinedProgram(
        program,
        context.confinement,
        arguments.timeout or context.background.max_seconds,
        arguments.cwd,
    )
    command = arguments.command
    line = command if isinstance(command, str) else shlex.join(command)
    started = await context.background.start(confined, line, context.spill_dir, context.secrets)
    return command_result(started, context.output_bytes)


def _environment(context: ToolContext, cwd: Path) -> dict[str, str]:
    variables = {**safe_environment(), **context.environment, "PWD": str(cwd)}
    hidden = context.confinement.hidden_variables if context.confinement else frozenset[str]()
    return {name: value for name, value in variables.items() if name not in hidden}


def _doubted(access: Access) -> Access:
    exact_command = access.kind is AccessKind.SHELL and access.claim is Claim.EXACT
    return replace(access, claim=Claim.OPAQUE) if exact_command else access


def _argv(command: str | list[str]) -> list[str]:
    if isinstance(command, list):
        return command
    shell = own_program("bash") or "/bin/sh"
    return [shell, "-c", command]


def _result(out: str, err: str, exit_: "Exit", timeout: float) -> str:
    parts: list[str] = []
    if out.strip("\n"):
        parts.append(out.rstrip("\n"))
    if err.strip("\n"):
        parts += ["[stderr]", err.rstrip("\n")]
    parts = parts or ["(no output)"]
    if exit_.timed_out:
        parts.append(f"[timed out after {timeout:g} s]")
    elif exit_.code != 0:
        parts.append(f"[exit code {exit_.code}]")
    return "\n".join(parts)
