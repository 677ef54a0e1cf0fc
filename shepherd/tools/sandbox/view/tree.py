"""Finding the files of a tree that a sandbox must hide or protect, with their hard links."""

import os
import stat
import time
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from shepherd.errors import ToolError
from shepherd.tools.paths import entries_below

MAX_ENTRIES = 100_000
"""Maximum number of entries in a scan; a larger tree counts as unknown."""

MAX_SHIELDED = 1000
"""Maximum number of paths that a sandbox hides or protects."""

SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "site-packages", "__pycache__"})
"""Directories of others' code and of generated files, which are not scanned."""

_SETTLED_NS = 2_000_000_000
"""The age from which a directory's change time proves that nothing changed later."""

MAX_LINK_ENTRIES = 500_000
_SKIPPED = "objects"  # git's objects are named by their hash, and are many


class Rules(Protocol):
    """The rules for files; see `FileRules`."""

    def concerns(self, name: str) -> bool: ...

    def hides(self, path: str) -> bool: ...

    def protects(self, path: str) -> bool: ...

    def obeyed(self, names: AbstractSet[str]) -> AbstractSet[str]: ...


class Shielded(Struct):
    """The paths that the sandbox hides, and those that it protects.

    `complete` is False if there are too many, or if the tree is too large to scan.
    """

    hidden: set[str] = field(default_factory=set[str])
    protected: set[str] = field(default_factory=set[str])
    complete: bool = True


class _Directory(Struct, frozen=True):
    """A directory's content; `changed` is its status change time in ns, -1 if it may be newer."""

    changed: int
    entries: int = 0
    below: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


class TreeScanner:
    """Scans a tree repeatedly; only changed directories are read again."""

    def __init__(self, rules: Rules, max_entries: int = MAX_ENTRIES) -> None:
        self._rules = rules
        self._max_entries = max_entries
        self._known: dict[str, _Directory] = {}  # by path, as they were at the last scan

    def scan(self, root: str) -> Shielded:
        """The current state of the tree at `root`."""
        shielded, entries = Shielded(), 0
        known: dict[str, _Directory] = {}
        pending = [root]
        while pending:
            path = pending.pop()
            directory = known[path] = self._directory(path)
            entries += directory.entries
            shielded.hidden.update(directory.hidden)
            shielded.protected.update(directory.protected)
            pending.extend(directory.below)
            if entries > self._max_entries:
                shielded.complete = False
                break
        self._known = known
        if len(shielded.hidden) + len(shielded.protected) > MAX_SHIELDED:
            shielded.complete = False
        return shielded

    def _directory(self, path: str) -> _Directory:
        """The content of a directory, as it was read before if nothing in it has changed."""
        try:
            changed = os.lstat(path).st_ctime_ns
            known = self._known.get(path)
            if known is not None and known.changed == changed:
                return known
            # a younger time may hide a further change, as its clock ticks slowly
            is_settled = changed < time.time_ns() - _SETTLED_NS
            with os.scandir(path) as entries:
                return self._read(list(entries), changed if is_settled else -1)
        except OSError:
            # deleted, or unreadable for Shepherd and so for commands
            return _Directory(changed=-1)

    def _read(self, entries: Sequence[os.DirEntry[str]], changed: int) -> _Directory:
        """The directory with these entries; nothing below a hidden or a skipped one is scanned."""
        obeyed = self._rules.obeyed({entry.name for entry in entries})
        below: list[str] = []
        hidden: list[str] = []
        protected: list[str] = []
        for entry in entries:
            if entry.name in obeyed:
                protected.append(entry.path)
            if self._rules.concerns(entry.name):
                if self._rules.hides(entry.path):
                    hidden.append(entry.path)
                    continue
                if self._rules.protects(entry.path):
                    protected.append(entry.path)
            if entry.name not in SKIPPED and entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
        return _Directory(changed, len(entries), tuple(below), tuple(hidden), tuple(protected))


def other_names(tops: Iterable[Path], paths: Iterable[Path]) -> list[Path]:
    """The other names below `tops` of the files in `paths`, which may be directories.

    Walks through them only if there is a file with several names. Raises ToolError if that takes
    too long, because a name could be missed.
    """
    linked: set[tuple[int, int]] = set()  # device and inode of files with several names
    known = list(paths)
    for path in known:
        files = entries_below(path, _SKIPPED) if path.is_dir() else [path]
        for status in map(os.lstat, files):
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                linked.add((status.st_dev, status.st_ino))
    if not linked:
        return []
    inodes = {inode for _device, inode in linked}
    others: list[Path] = []
    for count, entry in enumerate(chain.from_iterable(map(entries_below, tops))):
        if count >= MAX_LINK_ENTRIES:
            raise ToolError(
                "a protected or secret file has further names (hard links), and the "
                "working directory is too large to look for them: remove the links"
            )
        # the number of an inode is known without a further call; only what matches is looked at
        if entry.inode() in inodes:
            name, status = Path(entry.path), entry.stat(follow_symlinks=False)
            is_known = any(name.is_relative_to(path) for path in known)
            if not is_known and (status.st_dev, status.st_ino) in linked:
                others.append(name)
    return others
