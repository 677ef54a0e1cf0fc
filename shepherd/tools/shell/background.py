"""The background commands of one conversation."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from shepherd.errors import ToolError
from shepherd.tasks import end_tasks
from shepherd.tools.permissions.content import private_key_sign
from shepherd.tools.shell.output import Redactor
from shepherd.tools.shell.process import ConfinedProgram, Exit
from shepherd.tools.text import new_spill_file, plain_text

_log = logging.getLogger(__name__)
MAX_RUNNING = 8
MAX_KEPT = 16
"""Commands whose output is kept; the oldest that have ended leave."""

START_SECONDS = 0.5
"""The time in which a command that fails at once has failed."""

MAX_LINE = 60
NOTE_BYTES = 8192
"""The end of the output that tells whether the sandbox refused something."""


class Changes(Protocol):
    """What a command has changed in its layer, until that is decided on."""

    needs_answer: bool
    """Whether it ended when there was nobody to ask."""

    @property
    def is_waiting(self) -> bool:
        """Whether it is not decided yet what becomes of them."""
        ...

    async def keep(self, *, goes_on: bool = False) -> str:
        """Commit what is approved, and drop the rest unless the command `goes_on`.

        Returns a sentence about that, "" if there was nothing. The changes may have to wait.
        """
        ...

    async def drop(self) -> str:
        """Forget what is not kept; returns a sentence, "" if there was nothing."""
        ...

    async def rescue(self, patches: Path) -> str:
        """Keep them as a patch at the end of the session; returns a sentence, or ""."""
        ...


class BackgroundCommand(Struct):
    """One command: `line` as the model wrote it, its log, and its end.

    `error` says why it could not be started, or "". `note` tells about the sandbox. `read_to` is
    the end of the part that the model has read. `watchers` are the calls that wait for its end.
    `is_known` means that the model knows its end. `changes` are those in its layer, None if it
    changes files as it runs; `outcome` says what became of them, "" if there were none.
    """

    id: str
    line: str
    log: "CommandLog"
    timeout: float
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    exit: Exit | None = None
    error: str = ""
    note: str = ""
    read_to: int = 0
    was_killed: bool = False
    watchers: int = 0
    is_known: bool = False
    task: "asyncio.Task[None] | None" = None
    changes: Changes | None = None
    outcome: str = ""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.task is not None and not self.task.done()

    @property
    def state(self) -> str:
        """`running for 12 s`, or how it ended."""
        if self.is_running and self.exit is None:
            return f"running for {time.monotonic() - self.started:.0f} s"
        if self.error:
            return f"failed: {self.error}"
        if self.was_killed or self.exit is None:
            return f"killed after {self.seconds:.0f} s"
        if self.exit.timed_out:
            return f"timed out after {self.timeout:g} s"
        return f"ended with exit code {self.exit.code} after {self.seconds:.0f} s"

    @property
    def waits(self) -> bool:
        """Whether it has ended, and what it has changed is still to be decided on."""
        return not self.is_running and self.changes is not None and self.changes.is_waiting

    @property
    def report(self) -> str:
        """Its state, and what became of its changes."""
        return f"{self.state}; {self.outcome}" if self.outcome else self.state

    @property
    def title(self) -> str:
        """`command 1 (npm run dev)`."""
        line = " ".join(self.line.split())
        short = line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"
        return f"command {self.id} ({short})"


class BackgroundCommands:
    """Starts commands, keeps their output, and ends them with the conversation.

    `when_ended` is called with each command that ends by itself and whose end the model does not
    know yet. Commands end with this process, also if it is killed.
    """

    max_seconds = 30 * 24 * 3600.0

    def __init__(self, when_ended: Callable[[BackgroundCommand], None] | None = None) -> None:
        self._when_ended = when_ended
        self._commands: dict[str, BackgroundCommand] = {}  # by id, the oldest first
        self._last_number = 0
        self._is_closed = False

    @property
    def all(self) -> list[BackgroundCommand]:
        """The commands, the oldest first."""
        return list(self._commands.values())

    def find(self, id: str) -> BackgroundCommand:
        """The command of this id; raises ToolError."""
        command = self._commands.get(id.strip().lstrip("#"))
        if command is None:
            ids = ", ".join(self._commands) or "none"
            raise ToolError(f"there is no background command {id!r}; there are: {ids}")
        return command

    async def start(
        self,
        program: ConfinedProgram,
        line: str,
        folder: Path,
        secrets: Mapping[str, str],
        hand_over: Callable[[], Changes | None] = lambda: None,
    ) -> BackgroundCommand:
        """Start a program, and wait a moment for the first output; raises ToolError.

        It is responsible for the changes that it is handed over.
        """
        if self._is_closed:
            raise ToolError("not started: the conversation is ending")
        running = [command for command in self.all if command.is_running or command.waits]
        if len(running) >= MAX_RUNNING:
            raise ToolError(f"{MAX_RUNNING} background commands run already; kill one of them")
        self._last_number += 1
        log = CommandLog(folder, secrets)
        command = BackgroundCommand(str(self._last_number), line, log, program.timeout)
        command.changes = hand_over()
        self._commands[command.id] = command
        self._forget_oldest()
        command.task = asyncio.create_task(self._run_to_end(command, program))
        command.task.add_done_callback(lambda _task: self._report_end(command))
        try:
            await self.wait(command, START_SECONDS)
        except asyncio.CancelledError:  # the model will never know that it runs
            await self.kill(command)
            raise
        return command

    async def wait(self, command: BackgroundCommand, seconds: float) -> None:
        """Wait for its end, for at most this long."""
        if command.task is None:
            return
        command.watchers += 1
        try:
            await asyncio.wait([command.task], timeout=seconds)
        finally:
            command.watchers -= 1

    async def kill(self, command: BackgroundCommand, *, by_user: bool = False) -> None:
        """End it with all its processes, and drop its changes; the model is told of the user's."""
        if command.task is not None and command.is_running:
            command.was_killed, command.is_known = True, not by_user
            await end_tasks(command.task)
        elif command.waits:
            await self._drop(command)

    async def keep(self, command: BackgroundCommand) -> str:
        """Keep what it has changed until now, as far as that is approved; returns a sentence."""
        changes = command.changes
        if changes is None:
            return "it changes files as it runs"
        if not command.is_running:
            await self._settle(command)
            return command.outcome or "it has changed nothing"
        return await changes.keep(goes_on=command.exit is None) or command.outcome

    async def settle_waiting(self) -> list[BackgroundCommand]:
        """Let the user decide now on the changes that could not be asked about before.

        Returns the commands on which there is an answer.
        """
        waiting = [c for c in self.all if c.waits and c.changes and c.changes.needs_answer]
        for command in waiting:
            await self._settle(command)
        return [command for command in waiting if not command.waits]

    async def aclose(self, patches: Path | None = None) -> list[str]:
        """End all commands, and remove their output.

        What they have changed is kept as patches; returns sentences about them.
        """
        self._is_closed = True
        self._when_ended = None  # nobody is there to read about the ends that follow
        await end_tasks(*[command.task for command in self.all if command.task is not None])
        sentences: list[str] = []
        for command in self.all:
            command.log.close()
            if command.changes is not None:
                kept = command.changes.rescue(patches) if patches else command.changes.drop()
                sentences.append(await kept)
        return [sentence for sentence in sentences if sentence]

    async def _run_to_end(self, command: BackgroundCommand, program: ConfinedProgram) -> None:
        """Run the program, and note its end in `command`; the command's own task runs this."""
        try:
            await self._run(command, program)
            if command.error:
                await self._drop(command)
            else:
                await self._settle(command)
        finally:
            if command.was_killed:
                await self._drop(command)

    async def _settle(self, command: BackgroundCommand) -> None:
        """Decide on what a command that has ended has changed."""
        if command.changes is None:
            return
        command.outcome = "its changes are not kept yet"
        try:
            command.outcome = await command.changes.keep()
        except Exception as error:  # noqa: BLE001 - a defect must not end the session
            _log.exception("the changes of background command %s", command.id)
            command.outcome = f"its changes wait: {error}"

    async def _drop(self, command: BackgroundCommand) -> None:
        """Drop what a command has changed."""
        if command.changes is not None:
            command.outcome = await command.changes.drop()

    async def _run(self, command: BackgroundCommand, program: ConfinedProgram) -> None:
        """Run the program, and note its end in `command`."""
        try:
            command.exit = await program.run(command.log.feed, command.log.feed)
            last_output = command.log.tail(NOTE_BYTES).text
            # both streams are one here; after a failure it is read as errors
            texts = ("", last_output) if command.exit.code else (last_output, "")
            command.note = program.note(*texts, command.exit)
        except ToolError as error:
            command.error = str(error)
        except Exception as error:  # noqa: BLE001 - a defect must not end the session
            _log.exception("background command %s failed", command.id)
            command.error = str(error)
        finally:
            command.log.finish()
            command.seconds = time.monotonic() - command.started

    def _report_end(self, command: BackgroundCommand) -> None:
        """Report the end of a command, unless the model knows it or a call waits for it."""
        if self._when_ended is not None and not (command.is_known or command.watchers):
            self._when_ended(command)

    def _forget_oldest(self) -> None:
        """Remove the oldest commands that have ended; a command without a task has yet to start."""
        ended = [c for c in self.all if c.task and not (c.is_running or c.waits)]
        excess = max(0, len(self._commands) - MAX_KEPT)
        for command in ended[:excess]:
            command.log.close()
            del self._commands[command.id]


KEPT_BYTES = 4 << 20
"""The log keeps the newest 4 to 8 MiB of a command."""

_KEY_BYTES = 256
"""More than the sign of a private key takes, which can come in parts."""


class Excerpt(Struct, frozen=True):
    """A part of a log: the text of the bytes from `begin` to `end`."""

    text: str
    begin: int
    end: int


class CommandLog:
    """Takes any number of bytes, and returns any part of the newest ones as text.

    Secrets are replaced by their names before anything is stored. `problem` says why output was
    lost, "" if none was. `key_sign` is the first sign of a private key in it, "" if there is none.
    The bytes from the position `begin` to `end` are kept, in a file of the folder.
    """

    def __init__(
        self, folder: Path, secrets: Mapping[str, str], kept_bytes: int = KEPT_BYTES
    ) -> None:
        self.problem = ""
        self.key_sign = ""
        self.begin = self.end = 0
        self._last_bytes = b""  # what a sign of a private key may begin in
        self._folder = folder
        self._kept_bytes = kept_bytes
        self._redactor = Redactor(secrets)
        self._file: tuple[int, Path] | None = None  # its descriptor and its path
        self._is_closed = False

    def feed(self, data: bytes) -> bool:
        """Take more output; returns True, because a `Sink` must say whether to go on."""
        self._store(self._redactor.feed(data))
        return True

    def finish(self) -> None:
        """Store the bytes that waited for the rest of a secret."""
        self._store(self._redactor.finish())

    def read(self, begin: int, limit: int) -> Excerpt:
        """At most `limit` bytes from `begin` on, up to the end of a line if one is among them."""
        begin = min(max(begin, self.begin), self.end)
        data = self._read_bytes(begin, min(limit, self.end - begin))
        if begin + len(data) < self.end:  # a line at the end may be cut
            whole_lines = data.rfind(b"\n") + 1
            data = data[: whole_lines or len(data)]
        text = plain_text(data.decode("utf-8", "replace"))
        return Excerpt(text, begin, begin + len(data))

    def tail(self, limit: int) -> Excerpt:
        """The last whole lines within `limit` bytes; the end of a longer line."""
        excerpt = self.read(self.end - limit, limit)
        if excerpt.begin <= self.begin:
            return excerpt  # nothing is cut at its beginning
        first_line = excerpt.text.find("\n") + 1
        # a line without an end stays, but it may begin inside a character
        return Excerpt(excerpt.text[first_line:].lstrip("\ufffd"), excerpt.begin, excerpt.end)

    def close(self) -> None:
        """Remove the file."""
        self._is_closed = True
        if self._file is None:
            return
        (descriptor, path), self._file = self._file, None
        with contextlib.suppress(OSError):
            os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink()

    def _read_bytes(self, begin: int, size: int) -> bytes:
        """The bytes from a position of the log on; the file begins at the position `self.begin`."""
        if self._file is None:
            return b""
        try:
            return os.pread(self._file[0], size, begin - self.begin)
        except OSError as error:
            self.problem = f"output can't be read: {error}"
            return b""

    def _store(self, data: bytes) -> None:
        """Append the bytes, look for a private key in them, and drop the oldest bytes."""
        if not self.key_sign:
            output = self._last_bytes + data
            self.key_sign = private_key_sign(output.decode("latin-1"))
            self._last_bytes = output[-_KEY_BYTES:]
        if not data or self._is_closed:
            return
        try:
            if self._file is None:
                self._file = new_spill_file(self._folder)
            self._append(self._file[0], data)
        except OSError as error:
            self.problem = f"output not kept: {error}"

    def _append(self, descriptor: int, data: bytes) -> None:
        """Write the bytes at the end; of a file that has become too long, only the end stays."""
        while data:  # a write may take only a part
            written = os.pwrite(descriptor, data, self.end - self.begin)
            self.end += written
            data = data[written:]
        if self.end - self.begin > 2 * self._kept_bytes:
            newest = self._read_bytes(self.end - self._kept_bytes, self._kept_bytes)
            os.pwrite(descriptor, newest, 0)
            os.ftruncate(descriptor, len(newest))
            self.begin = self.end - len(newest)
