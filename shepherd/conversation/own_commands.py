"""Commands that the user types after `!`: they run as in the user's shell, outside the sandbox."""

import asyncio
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shepherd import errors, events, own_programs
from shepherd.messages import Message, ToolCall
from shepherd.tools.access import EXECUTE_COMMAND
from shepherd.tools.permissions.content import holds_private_key
from shepherd.tools.program import Program, safe_environment
from shepherd.tools.shell.output import CappedOutput, LiveTail
from shepherd.tools.shell.process import ConfinedProgram, merged
from shepherd.tools.text import cap_text

MAX_SECONDS = 30 * 24 * 3600.0
MAX_SHOWN = 262_144
"""Bytes of the output that the user can read; the rest goes to a file."""

MAX_SHARED = 16_384
"""Bytes of one output that the model reads, and of all outputs before one prompt.

In a smaller context it is a byte for each token of it, which is a quarter of most texts' tokens.
"""

SIGN, ALONE = "!", "!!"
"""The beginning of a line that the user runs, with and without the model's knowledge."""

SHARED = "The user ran `{line}` in a shell, and it {end}. Its output:\n{output}"
LEFT_OUT = "(Outputs of earlier commands are left out.)"
DONE = "Done."
HELD_BACK = "(held back: it holds a private key)"
INTERRUPTED = "was interrupted by the user"


class OwnCommand(Struct, frozen=True):
    """A command that has ended; `end` says how, such as `ended with exit code 1`."""

    line: str
    output: str
    end: str
    ok: bool


@dataclass(slots=True)
class OwnCommands:
    """Runs the user's own commands in `cwd`, and keeps the outputs that the model will read.

    `context_size` returns the size of the model's context in tokens, 0 if it is unknown.
    `last` is the command that ran last, once it has ended or was cancelled.
    """

    cwd: Path
    spill_dir: Path
    secrets: Mapping[str, str] = field(repr=False)
    context_size: Callable[[], int]
    last: OwnCommand | None = None
    offers_tool: Callable[[], bool] = lambda: False
    """Whether the model has the tool that runs commands."""
    _shared: list[OwnCommand] = field(default_factory=list[OwnCommand])

    async def run(self, line: str, on_event: events.EventCallback, *, shared: bool) -> OwnCommand:
        """Run a line in the user's shell; the output goes with the next prompt if `shared`.

        `on_event` receives the last lines while it runs. Raises ToolError if there is no shell. If
        the task is cancelled, the output so far is shared, and CancelledError is raised.
        """
        self.last = None
        output, tail = CappedOutput(MAX_SHOWN, self.spill_dir), LiveTail(on_event, self.secrets)

        def take(data: bytes) -> bool:
            return output.feed(data) and tail.out(data)

        environment = {**safe_environment(), "PWD": str(self.cwd)}
        program = Program(merged([_shell(), "-c", line]), self.cwd, environment)
        try:
            exit_ = await ConfinedProgram(program, None, MAX_SECONDS).run(take, take)
        except asyncio.CancelledError:
            text = output.text().rstrip("\n")
            self.last = OwnCommand(line, text, INTERRUPTED, ok=False)
            if shared:
                self._share(self.last)
            raise
        finally:
            tail.close()
        end = f"ended with exit code {exit_.code}"
        self.last = command = OwnCommand(line, output.text().rstrip("\n"), end, ok=exit_.code == 0)
        if shared:
            await asyncio.to_thread(self._share, command)
        return command

    async def preface(self) -> str:
        """The outputs for the model since the last prompt, as a text; each is returned once."""
        commands, complete = self._take_shared()
        texts = [SHARED.format(line=c.line, end=c.end, output=c.output) for c in commands]
        return "\n\n".join([*([] if complete else [LEFT_OUT]), *texts])

    async def messages(self) -> list[Message]:
        """The same as calls of the model's own tool, each with its result; call it first.

        Models were trained on this form, and small ones take a text beside a prompt for a task. A
        model without that tool gets the text.
        """
        if not self.offers_tool():
            return []
        commands, complete = self._take_shared()
        messages = [] if complete else [Message.hint(LEFT_OUT), Message.assistant(DONE)]
        for command in commands:
            call = ToolCall(
                f"own{secrets.token_hex(3)}", EXECUTE_COMMAND, {"command": command.line}
            )
            end = "" if command.ok else f"\n[{command.end.removeprefix('ended with ')}]"
            # four messages, so that the user and the model still take turns
            messages += [
                Message.hint(f"Run {command.line}"),
                Message.assistant("", "", (call,)),
                Message.tool(call, f"{command.output}{end}"),
                Message.assistant(DONE),
            ]
        return messages

    def _take_shared(self) -> tuple[list[OwnCommand], bool]:
        """The last commands whose outputs fit together, and whether these are all."""
        commands, self._shared = self._shared, []
        limit, kept = self._limit(), list[OwnCommand]()
        for command in reversed(commands):
            limit -= len(command.line.encode()) + len(command.output.encode())
            if kept and limit < 0:  # the newest one always goes: it was cut to the limit itself
                break
            kept.append(command)
        return kept[::-1], len(kept) == len(commands)

    def _share(self, command: OwnCommand) -> None:
        """Keep the output for the model, without secrets and cut to its limit."""
        output = command.output.strip("\n") or "(no output)"
        output = HELD_BACK if holds_private_key(output) else self.redacted(output)
        try:
            output = cap_text(output, self._limit(), self.spill_dir)
        except OSError:  # the disk is full: the end of an output says most
            output = output.encode()[-self._limit() :].decode("utf-8", "ignore")
        self._shared.append(replace(command, line=self.redacted(command.line), output=output))

    def redacted(self, text: str) -> str:
        """The text with the names of secrets in place of the secrets."""
        for secret, name in self.secrets.items():
            text = text.replace(secret, f"[{name}]")
        return text

    def _limit(self) -> int:
        """The bytes of output that the model may read; the context's size is 0 if unknown."""
        return min(MAX_SHARED, self.context_size() or MAX_SHARED)


def _shell() -> str:
    """The user's shell, or another one."""
    own = os.environ.get("SHELL", "")
    # a name without a directory would be looked up in PATH, where a project may have put one
    shell = shutil.which(own) if own.startswith("/") else None
    shell = shell or own_programs.own_program("bash") or own_programs.own_program("sh")
    if shell is None:
        raise errors.ToolError("there is no shell to run the command; set SHELL")
    return shell
