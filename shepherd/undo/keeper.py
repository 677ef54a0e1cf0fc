"""Keeps the files that the calls of a conversation change, and moves them back and forth."""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from shepherd.errors import UndoError, UnkeptError
from shepherd.tools.access import AccessKind, Claim
from shepherd.tools.consent import PreparedCall
from shepherd.tools.tool import ToolResult
from shepherd.undo.files import KeptFiles
from shepherd.undo.log import MoveResult
from shepherd.undo.recorder import Recorder
from shepherd.undo.scan import Scanner
from shepherd.undo.store import UndoLimits, UndoStore

T = TypeVar("T")

_UNKEPT = (
    "what it replaces can't be kept for /undo ({error}). The user can make room there, make it "
    "writable, or begin a new session; with undo.enabled = false in the settings nothing is kept"
)


class UndoKeeper:
    """A `CallStep` that keeps each file as it was before a call changed it.

    `protects` tells whether a file may hold a secret; such files are not kept. `warn` receives
    sentences for the user. If the store fails, a call that replaces or deletes a file is refused.
    """

    def __init__(
        self,
        path: Path,
        cwd: Path,
        limits: UndoLimits,
        protects: Callable[[Path], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._path = path
        self._cwd = cwd
        self._limits = limits
        self._protects = protects
        self._warn = warn
        self._session = ""
        self._position: Callable[[], int] = int  # 0 before `begin`
        self._thread = ThreadPoolExecutor(1, "undo")  # SQLite's connection stays in one thread
        self._recorder: Recorder | None = None
        self._warnings: list[str] = []  # of the thread, for the next return to the caller
        self._has_warned = False

    def begin(self, session: str, position: Callable[[], int]) -> None:
        """Keep the files of this session from now on.

        `position` returns the number of its next message.
        """
        self._session, self._position = session, position
        self._thread.submit(self._close)  # the recorder of the session before

    async def before(self, prepared: PreparedCall) -> None:
        """Keep what the call will change.

        Raises UnkeptError if the store fails, and the call names a file that is there.
        """
        task = asyncio.current_task()
        # a cancelled call never comes to `after`; without a task nobody knows, so it goes on
        is_over = task.done if task is not None else lambda: False
        error = await self._try(lambda r: r.before(prepared, self._position(), is_over))
        if error is not None and await asyncio.to_thread(_replaces, prepared):
            raise UnkeptError(_UNKEPT.format(error=error)) from error

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """Record what the call has changed."""
        await self._try(lambda r: r.after(prepared))
        return result

    async def do(self, work: Callable[[Recorder], T]) -> T:
        """Do the work in the thread of the store, and pass its warnings on; raises UndoError."""
        try:
            return await asyncio.wrap_future(self._thread.submit(partial(self._work, work)))
        finally:
            while self._warnings:
                self._warn(self._warnings.pop(0))

    async def unkept(self, paths: Collection[str]) -> list[str]:
        """What can't be brought back after a change of these absolute paths, for the user.

        It reads no contents. What it has told is not told again when the call begins.
        """
        try:
            return await self.do(lambda r: r.unkept(paths))
        except UndoError:  # the call itself warns of it
            return []

    async def undo(self, count: int = 1, *, force: bool = False) -> MoveResult:
        """Undo the last changes. Raises UndoError, and changes nothing, if something else
        changed a file since, unless `force`."""
        return await self.do(lambda r: r.undo(count, self._position(), force=force))

    async def redo(self, count: int = 1, *, force: bool = False) -> MoveResult:
        """Make the last undone changes again; raises UndoError like `undo`."""
        return await self.do(lambda r: r.redo(count, self._position(), force=force))

    async def move_to(self, position: int, *, force: bool = False) -> MoveResult:
        """Give all files the states that they had when message `position` was added."""
        return await self.do(lambda r: r.move_to(position, self._position(), force=force))

    async def check_move(self, position: int) -> None:
        """Raise the UndoError of `move_to`, if any."""
        await self.do(lambda r: r.check_move(position))

    async def changed_files(self, position: int) -> list[str]:
        """The paths that changed since message `position` was added."""
        return await self.do(lambda r: r.changed_files(position))

    async def diff(self) -> str:
        """The changes of the session's files since its start, as one diff."""
        return await self.do(lambda r: r.diff())

    async def preface(self) -> str:
        """What the user undid since the last message, for the model; "" if nothing."""
        # without a message or a store there is nothing to undo, so no store is made
        if self._recorder is None and not (self._position() and self._path.exists()):
            return ""
        try:
            return await self.do(lambda r: r.preface(self._position()))
        except UndoError:
            # the next call warns of it
            return ""

    async def aclose(self) -> None:
        """Close the store."""
        await asyncio.wrap_future(self._thread.submit(self._close))
        self._thread.shutdown(wait=False)

    async def _try(self, work: Callable[[Recorder], object]) -> UndoError | None:
        """Do the work; returns its failure, of which the first also becomes a warning."""
        try:
            await self.do(work)
        except UndoError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"Changes to files can't be undone: {error}")
            return error
        return None

    def _work(self, work: Callable[[Recorder], T]) -> T:
        """Do the work; the thread of the store calls it, for one piece of work after another."""
        try:
            return work(self._opened())
        except (ValueError, TypeError, KeyError, OSError) as error:  # a row of another program
            raise UndoError(f"{self._path}: {error}") from error

    def _opened(self) -> Recorder:
        """The recorder of the session, opened at its first use."""
        if self._recorder is None:
            limits = self._limits
            store = self._open_store()
            files = self._kept_files(store)
            # what is kept before commands may take half of the store
            budget = min(limits.command_bytes, limits.max_bytes // 2)
            scanner = None
            if budget:
                entries, redo_bytes = limits.command_entries, limits.redo_bytes
                scanner = Scanner(self._cwd, files, budget, entries, redo_bytes)
            self._recorder = Recorder(store, files, self._cwd, scanner, self._warnings.append)
        return self._recorder

    # tests end a program in the middle of these two
    def _open_store(self) -> UndoStore:
        return UndoStore(self._path, self._limits, self._warnings.append)

    def _kept_files(self, store: UndoStore) -> KeptFiles:
        largest = min(self._limits.file_bytes, self._limits.max_bytes)
        return KeptFiles(store, self._session, self._protects, largest)

    def _close(self) -> None:
        """Close the store in its thread, after all work that was submitted before."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close()


def _replaces(prepared: PreparedCall) -> bool:
    """Whether the call writes to a file that is there, by a path that it names for certain."""
    writes = (access for access in prepared.accesses if access.kind is AccessKind.WRITE)
    paths = [Path(access.target) for access in writes if access.claim is Claim.EXACT]
    return any(path.is_symlink() or (path.exists() and not path.is_dir()) for path in paths)
