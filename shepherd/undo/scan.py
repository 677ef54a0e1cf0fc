"""A snapshot of the working directory, to find what a command changed."""

import math
import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from shepherd.tools.program import git_paths
from shepherd.tools.search.walk import MAX_DEPTH, SKIPPED
from shepherd.undo.files import TOO_MUCH, KeptFiles, unkept
from shepherd.undo.store import ABSENT, Entry, FileState, Kind

MAX_SECONDS = 10.0
SETTLED_NS = 50_000_000
"""A file that changed less than 50 ms before it was read may change again under the same times."""


class Marks(NamedTuple):
    """What tells whether a path has changed: equal marks, equal content; times in nanoseconds."""

    mode: int
    size: int
    modified: int
    changed: int
    inode: int


class TooLargeError(Exception):
    """The directory is too large to look through; the message says what is too much."""


class _Known(Struct):
    """A state and the marks that it had; only settled ones are believed again."""

    marks: Marks
    state: FileState
    is_settled: bool


class Scanner(Struct):
    """Finds the changes of commands below `root`.

    The contents of at most `max_bytes` are kept in advance, those of small files first, and of what
    a command has written at most `redo_bytes`. Directories such as `.git` and `node_modules` and
    what git ignores are left out.
    """

    root: Path
    files: KeptFiles
    max_bytes: int
    max_entries: int
    redo_bytes: int
    _known: dict[str, _Known] = field(default_factory=dict[str, _Known])

    def before(self) -> dict[str, FileState]:
        """The state of each path, with its content in the store; raises TooLargeError."""
        marks = self._marks()
        stale = [path for path, mark in marks.items() if not self._is_known(path, mark)]
        self._learn(stale, self._affordable(stale, marks), marks)
        self._known = {path: self._known[path] for path in marks}  # without what has gone
        return {path: known.state for path, known in self._known.items()}

    def changes(self, before: dict[str, FileState]) -> list[Entry]:
        """What changed since `before`; raises TooLargeError."""
        marks = self._marks()
        known = self._known
        changed = [
            path
            for path, mark in marks.items()
            if path not in before or not self._is_known(path, mark)
        ]
        self._learn(changed, changed, marks, self.redo_bytes)
        entries = [Entry(p, before.get(p, ABSENT), known[p].state) for p in changed]
        entries += [Entry(p, state, ABSENT) for p, state in before.items() if p not in marks]
        # a file that was only touched has other marks and the same state
        return [entry for entry in entries if entry.before != entry.after]

    def _learn(
        self,
        paths: list[str],
        with_content: list[str],
        marks: dict[str, Marks],
        total_bytes: float = math.inf,
    ) -> None:
        """Learn the states of `paths`; the store gets the contents of some of them."""
        now = time.time_ns()
        states = self.files.states(with_content, MAX_SECONDS, total_bytes)
        for path in paths:
            path_marks = marks[path]
            state = states.get(path) or _unread(Path(path), path_marks)
            is_settled = max(path_marks.modified, path_marks.changed) < now - SETTLED_NS
            # what is not kept after a command may be kept before the next one
            self._known[path] = _Known(path_marks, state, is_settled and state.why != TOO_MUCH)

    def _is_known(self, path: str, mark: Marks) -> bool:
        """Whether the path has not changed since its state was learned."""
        known = self._known.get(path)
        return known is not None and known.marks == mark and known.is_settled

    def _affordable(self, paths: list[str], marks: dict[str, Marks]) -> list[str]:
        """The paths whose contents are kept: the smallest, as far as the budget goes."""
        spent = sum(k.marks.size for k in self._known.values() if k.state.kind is Kind.FILE)
        chosen: list[str] = []
        for path in sorted(paths, key=lambda path: marks[path].size):
            spent += marks[path].size if stat.S_ISREG(marks[path].mode) else 0  # links are free
            if spent > self.max_bytes:
                break
            chosen.append(path)
        return chosen

    def _marks(self) -> dict[str, Marks]:
        """The marks of all paths that are looked through; raises TooLargeError."""
        ignored = _ignored(self.root)
        result: dict[str, Marks] = {}
        deadline = time.monotonic() + MAX_SECONDS
        pending = [(str(self.root), 0)]
        while pending:
            directory, depth = pending.pop()
            for path, mark in _entries(directory, ignored):
                result[path] = mark
                if stat.S_ISDIR(mark.mode) and depth < MAX_DEPTH:
                    pending.append((path, depth + 1))
            if len(result) > self.max_entries:
                raise TooLargeError(f"{self.root} holds more than {self.max_entries:,} files")
            if time.monotonic() > deadline:
                raise TooLargeError(f"{self.root} takes too long to look through")
        return result


def _entries(directory: str, ignored: frozenset[str]) -> list[tuple[str, Marks]]:
    """Files, links and directories in a directory; [] if it can't be read."""
    result: list[tuple[str, Marks]] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name in SKIPPED or entry.path in ignored:
                    continue
                status = entry.stat(follow_symlinks=False)
                mode, inode = status.st_mode, status.st_ino
                if stat.S_ISDIR(mode):  # its size and times change with its entries
                    marks = Marks(mode, size=0, modified=0, changed=0, inode=inode)
                elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                    times = (status.st_mtime_ns, status.st_ctime_ns)
                    marks = Marks(mode, status.st_size, *times, inode)
                else:
                    continue  # a device, a socket or a pipe, which no copy could restore
                result.append((entry.path, marks))
    except OSError:
        return result  # removed meanwhile, or unreadable: then a command can't change it either
    return result


def _unread(path: Path, mark: Marks) -> FileState:
    """The state of a file beyond the limits of all contents and of time."""
    try:
        status = path.lstat()
    except OSError:
        return FileState(Kind.UNKEPT, detail=str(mark), why="it could not be read")
    return unkept(status, "there was too much to keep before a command")


def _ignored(root: Path) -> frozenset[str]:
    """The paths that git ignores, directories as a whole; none outside of a repository."""
    options = ["--others", "--ignored", "--exclude-standard", "--directory"]
    names = git_paths(root, ["ls-files", "-z", *options])
    return frozenset(f"{root}/{name.rstrip('/')}" for name in names)
