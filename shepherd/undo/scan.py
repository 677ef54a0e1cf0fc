"""A snapshot of the working directory, to find what a command changed."""

import math
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from shepherd.tools.program import git_paths
from shepherd.tools.search.ripgrep import SKIPPED
from shepherd.undo.files import TOO_MUCH, KeptFiles, marks, unkept
from shepherd.undo.store import ABSENT, Entry, FileState, Kind

MAX_SECONDS = 10.0
MAX_DEPTH = 100
SETTLED_NS = 50_000_000
"""A file that changed less than 50 ms before it was read may change again under the same times."""

_Statuses = dict[str, os.stat_result]


class TooLargeError(Exception):
    """The directory is too large to look through; the message says what is too much."""


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
    _known: dict[str, FileState] = field(default_factory=dict[str, FileState])
    """The states that are believed as long as the marks of the files are the same."""

    def before(self) -> dict[str, FileState]:
        """The state of each path, with its content in the store; raises TooLargeError."""
        statuses = self._statuses()
        known = {path: s for path, s in self._known.items() if _is_at(s, statuses.get(path))}
        self._known = dict(known)
        stale = [path for path in statuses if path not in known]
        contents = self._affordable(stale, statuses)
        return known | self._learn(stale, contents, statuses)

    def changes(self, before: dict[str, FileState]) -> list[Entry]:
        """What changed since `before`; raises TooLargeError."""
        statuses = self._statuses()
        changed: list[str] = []
        for path, status in statuses.items():
            known = self._known.get(path)
            if known is None or known != before.get(path) or not _is_at(known, status):
                changed.append(path)
        after = self._learn(changed, changed, statuses, self.redo_bytes)
        entries = [Entry(path, before.get(path, ABSENT), after[path]) for path in changed]
        entries += [Entry(p, state, ABSENT) for p, state in before.items() if p not in statuses]
        # a file that was only touched has other marks and the same state
        return [entry for entry in entries if entry.before != entry.after]

    def _learn(
        self,
        paths: Iterable[str],
        with_content: Iterable[str],
        statuses: _Statuses,
        total_bytes: float = math.inf,
    ) -> dict[str, FileState]:
        """The states of `paths`, whose contents are in the store if they are `with_content`."""
        oldest = time.time_ns() - SETTLED_NS
        read = self.files.states(with_content, MAX_SECONDS, total_bytes)
        states: dict[str, FileState] = {}
        for path in paths:
            status = statuses[path]
            too_much = unkept(status, "there was too much to keep before a command")
            state = states[path] = read.get(path, too_much)
            self._known.pop(path, None)
            is_settled = max(status.st_mtime_ns, status.st_ctime_ns) < oldest
            # what is not kept after a command may be kept before the next one
            if is_settled and _is_at(state, status) and state.why != TOO_MUCH:
                self._known[path] = state
        return states

    def _affordable(self, paths: Iterable[str], statuses: _Statuses) -> list[str]:
        """The paths whose contents are kept: the smallest, as far as the budget goes."""

        def size(path: str) -> int:  # links and directories are free
            return statuses[path].st_size if stat.S_ISREG(statuses[path].st_mode) else 0

        spent = sum(size(path) for path, s in self._known.items() if s.kind is Kind.FILE)
        chosen: list[str] = []
        for path in sorted(paths, key=size):
            spent += size(path)
            if spent > self.max_bytes:
                break
            chosen.append(path)
        return chosen

    def _statuses(self) -> _Statuses:
        """The status of all paths that are looked through; raises TooLargeError."""
        ignored = _ignored(self.root)
        result: _Statuses = {}
        deadline = time.monotonic() + MAX_SECONDS
        pending = [(str(self.root), 0)]
        while pending:
            directory, depth = pending.pop()
            for path, status in _entries(directory, ignored):
                result[path] = status
                if stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
                    pending.append((path, depth + 1))
            if len(result) > self.max_entries:
                raise TooLargeError(f"{self.root} holds more than {self.max_entries:,} files")
            if time.monotonic() > deadline:
                raise TooLargeError(f"{self.root} takes too long to look through")
        return result


def _is_at(state: FileState, status: os.stat_result | None) -> bool:
    """Whether a path with this status has had this state since it was learned."""
    if status is None or state.kind is Kind.DIRECTORY:  # its marks change with its entries
        return status is not None and status.st_mode == stat.S_IFDIR | state.mode
    return state.marks == marks(status)


def _entries(directory: str, ignored: frozenset[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Files, links and directories in a directory; none if it can't be read."""
    # removed meanwhile, or unreadable: then a command can't change it either
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name in SKIPPED or entry.path in ignored:
                continue
            status = entry.stat(follow_symlinks=False)
            # no copy could restore a device, a socket or a pipe
            if stat.S_IFMT(status.st_mode) in (stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK):
                yield entry.path, status


def _ignored(root: Path) -> frozenset[str]:
    """The paths that git ignores, directories as a whole; none outside of a repository."""
    options = ["--others", "--ignored", "--exclude-standard", "--directory"]
    names = git_paths(root, ["ls-files", "-z", *options])
    return frozenset(f"{root}/{name.rstrip('/')}" for name in names)
