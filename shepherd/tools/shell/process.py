"""Runs a program in its own process group, and always ends the group in time."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from shepherd.errors import ToolError
from shepherd.tools.paths import reason
from shepherd.tools.program import Program
from shepherd.tools.sandbox.refusal import Refusal
from shepherd.tools.sandbox.sandbox import Confinement

_SHELL = "/bin/sh"
_SCRIPT = """trap '' HUP INT TERM
read -r _
kill -TERM "-$0" && sleep 1 && kill -KILL "-$0"
"""
"""Waits on a pipe that only this process holds open; `$0` is the program's process group."""


@contextmanager
def guarded(group: int) -> Generator[None]:
    """A context in which the death of this process also ends a process group.

    Leaving it keeps the group alive: its background processes belong to the user. A small shell
    waits for the end of a pipe. PR_SET_PDEATHSIG is not sufficient: it reaches only the program and
    not its children. It is sent when a thread ends, and only Linux has it.
    """
    shell = subprocess.Popen(
        [_SHELL, "-c", _SCRIPT, str(group)],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        shell.kill()
        shell.wait()
        if shell.stdin is not None:
            shell.stdin.close()


Sink: TypeAlias = Callable[[bytes], bool]
"""Takes output as it comes; False ends the program."""

_PIPE_GRACE = 0.3  # for output that is still in the pipe, or held by background children
_TERM_GRACE = 1.5
_MAX_NAP = 0.02
_LONG_NAP, _NAP_SHARE = 0.25, 0.02
"""Of a program that runs for long, the end is noticed after at most this share of its time."""


class Exit(Struct, frozen=True):
    """The end of a program; `code` is 128 + the number of the signal that killed it."""

    code: int
    timed_out: bool = False
    stopped: bool = False


class _PipeReader(asyncio.Protocol):
    """Hands what comes from a pipe to a sink; `note_enough` is called when it returns False."""

    def __init__(self, sink: Sink, note_enough: Callable[[], None]) -> None:
        self._sink = sink
        self._note_enough = note_enough
        self.end_of_output = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self._sink(data):
            self._note_enough()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.end_of_output.done():
            self.end_of_output.set_result(None)


async def run_program(program: Program, out: Sink, err: Sink, timeout: float) -> Exit:
    """Run until the program ends, `timeout` seconds have passed, or a sink returns False.

    After a timeout, a sink's stop, or a cancelled task, the whole process group gets SIGTERM and
    soon SIGKILL. The call does not wait for children in the background. If this process is killed,
    the group ends too. Raises OSError or ToolError if the program can't be started.
    """
    # asyncio's processes would wait for the pipes of background children
    return await _Running(program.start()).finish(out, err, timeout)


class _Running(Struct):
    """A started program, which leads a process group of its own."""

    process: subprocess.Popen[bytes]
    _sink_has_enough: bool = False  # then the program ends early
    _transports: list[asyncio.ReadTransport] = field(default_factory=list[asyncio.ReadTransport])
    _readers: list[_PipeReader] = field(default_factory=list[_PipeReader])

    async def finish(self, out: Sink, err: Sink, timeout: float) -> Exit:
        """Wait for the end of the program, or end it; also if the task is cancelled."""
        # the guard stays until the program has ended, also if the call is cancelled
        with contextlib.ExitStack() as resources:
            try:
                resources.enter_context(guarded(self.process.pid))
                in_time = await self._attend(out, err, timeout)
            except BaseException:
                await self._terminate()
                raise
            finally:
                self._close_pipes()
        code = self.process.returncode
        return Exit(
            128 - code if code < 0 else code,  # a negative one is the number of a signal
            timed_out=not in_time and not self._sink_has_enough,
            stopped=self._sink_has_enough,
        )

    def _close_pipes(self) -> None:
        """Close what this process holds of the program's output."""
        for transport in self._transports:
            transport.close()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None and not self._transports:  # a transport closes its pipe itself
                pipe.close()

    async def _attend(self, out: Sink, err: Sink, timeout: float) -> bool:
        """Wait for the end, and enforce it; returns whether the program ended in time."""
        await self._read_pipe(self.process.stdout, out)
        await self._read_pipe(self.process.stderr, err)
        in_time = await self._wait_for_exit(timeout)
        if not in_time or self._sink_has_enough:
            await self._terminate()
        # the last output may still be on its way
        await asyncio.wait([r.end_of_output for r in self._readers], timeout=_PIPE_GRACE)
        return in_time

    async def _read_pipe(self, pipe: object, sink: Sink) -> None:
        """Hand all that comes from the pipe to the sink from now on."""
        loop = asyncio.get_running_loop()
        transport, reader = await loop.connect_read_pipe(
            lambda: _PipeReader(sink, self._note_enough), pipe
        )
        self._transports.append(transport)
        self._readers.append(reader)

    def _note_enough(self) -> None:
        self._sink_has_enough = True

    async def _wait_for_exit(self, seconds: float) -> bool:
        """Whether the program ends in time; asks again and again, as a sink may stop it as well."""
        loop = asyncio.get_running_loop()
        started, nap = loop.time(), 0.001
        while self.process.poll() is None:
            elapsed = loop.time() - started
            if self._sink_has_enough or elapsed >= seconds:
                return False
            await asyncio.sleep(min(nap, seconds - elapsed))
            # short programs are noticed at once, and long ones do not wake this process often
            longest_nap = max(_MAX_NAP, min(_LONG_NAP, elapsed * _NAP_SHARE))
            nap = min(nap * 1.5, longest_nap)
        return True

    async def _terminate(self) -> None:
        """Ask the group to end, and kill it if it does not in time, or if this is cancelled."""
        self._signal_group(signal.SIGTERM)
        try:
            for _ in range(round(_TERM_GRACE / _MAX_NAP)):  # nothing tells when a group has ended
                if not self._group_is_alive():
                    break
                await asyncio.sleep(_MAX_NAP)
        finally:
            self._signal_group(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1)  # else it would stay a zombie

    def _group_is_alive(self) -> bool:
        """Whether the program runs, or a child of it that stayed in its group."""
        if self.process.poll() is None:
            return True
        return self._signal_group(0) and _has_living_member(self.process.pid)

    def _signal_group(self, number: int) -> bool:
        """Send a signal, 0 for none; False if there is no such group any more."""
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS refuses a group of ended processes
            return False
        return True


def _has_living_member(group: int) -> bool:
    """Whether a process of the group lives; without an init, dead ones stay members as zombies."""
    if not Path("/proc/self/stat").exists():
        return True  # not Linux, which alone tells the states of processes in files
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process ended meanwhile
            # `42 (name) S 1 40 …`: the name may have spaces and brackets
            _, _, fields = status.read_text("utf-8", "replace").rpartition(")")
            state, _parent, of_group = fields.split()[:3]
            if int(of_group) == group and state not in "ZX":  # zombie, dead
                return True
    return False


def merged(argv: Sequence[str]) -> list[str]:
    """The command line with its errors in its output, in the order in which they are written."""
    return [_SHELL, "-c", 'exec "$0" "$@" 2>&1', *argv]


class ConfinedProgram(Struct, frozen=True):
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
            inside = self.confinement.enter(self.program) if self.confinement else None
            with inside or nullcontext(self.program) as confined:
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
        """Sentences about what the box can't do here; [] without a box."""
        return self.confinement.losses if self.confinement else []

    def note(self, out: str, err: str, exit_: Exit) -> str:
        """The losses and the refusal of the box, in lines of their own; "" if there are none."""
        refusal = self.refusal(out, err, exit_)
        texts = [*self.losses, *([refusal.text] if refusal else [])]
        return "\n".join(f"[{text}]" for text in texts)

    def _start_error(self, error: OSError) -> ToolError:
        """The error of a program that can't be started; a missing directory looks like it."""
        name, cwd = self.program.argv[0], self.program.cwd
        if not cwd.is_dir():
            return ToolError(f"no such directory: {self.place or cwd}")
        if isinstance(error, FileNotFoundError):
            return ToolError(f"command not found: {name}")
        return ToolError(f"can't run {name}: {reason(error)}")
