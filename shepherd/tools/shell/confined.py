"""A program with the box around it and its time limit."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from shepherd.errors import ToolError
from shepherd.tools.paths import reason
from shepherd.tools.program import Program, Startable
from shepherd.tools.sandbox.refusal import Refusal
from shepherd.tools.sandbox.sandbox import Confinement
from shepherd.tools.shell.process import Exit, Sink, run_program


def merged(argv: Sequence[str]) -> list[str]:
    """The command line with its errors in its output, in the order in which they are written."""
    return ["/bin/sh", "-c", 'exec "$0" "$@" 2>&1', *argv]


@dataclass(frozen=True, slots=True)
class ConfinedProgram:
    """A program that runs in a confinement, if there is one, for at most `timeout` seconds.

    `place` is the name of its directory in the error if there is none.
    """

    program: Program
    confinement: Confinement | None
    timeout: float
    place: str = ""

    async def run(self, out: Sink, err: Sink) -> Exit:
        """Run to the end; raises ToolError if the program can't be started."""
        try:
            with self._entered() as confined:
                return await run_program(confined, out, err, self.timeout)
        except OSError as error:
            raise self._start_error(error) from error

    def refusal(self, out: str, err: str, exit_: Exit) -> Refusal | None:
        """The refusal of the box; None if there is none."""
        if self.confinement is None or exit_.timed_out:
            return None
        return self.confinement.refusal(out, err, exit_.code)

    @property
    def losses(self) -> list[str]:
        """See `Confinement`."""
        return self.confinement.losses if self.confinement else []

    def note(self, out: str, err: str, exit_: Exit) -> str:
        """The losses and the refusal of the box, in lines of their own; "" if there are none."""
        refusal = self.refusal(out, err, exit_)
        texts = [*self.losses, *([refusal.text] if refusal else [])]
        return "\n".join(f"[{text}]" for text in texts)

    def _entered(self) -> AbstractContextManager[Startable]:
        if self.confinement is None:
            return nullcontext(self.program)
        return self.confinement.enter(self.program)

    def _start_error(self, error: OSError) -> ToolError:
        name, cwd = self.program.argv[0], self.program.cwd
        if not cwd.is_dir():
            return ToolError(f"no such directory: {self.place or cwd}")
        if isinstance(error, FileNotFoundError):
            return ToolError(f"command not found: {name}")
        return ToolError(f"can't run {name}: {reason(error)}")
