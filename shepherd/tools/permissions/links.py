"""Finds the other names of files (hard links) under which rules deny them."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from shepherd.tools.access import Access, AccessKind
from shepherd.tools.paths import entries_below
from shepherd.tools.permissions.defaults import protected_rules

MAX_ENTRIES = 200_000
"""The maximum number of names to check in one directory tree; it takes about half a second."""


class HardLinks(Struct):
    """The other names of files nearby; the search runs once, for the first file with several names.

    The search covers the working directory and everything below it, and the usual places of
    secrets in the home directory. `denies` says whether a rule denies an access.
    """

    cwd: Path
    denies: Callable[[Access], bool]
    _names: dict[int, list[str]] | None = None  # by the inode, once they are searched
    _complete: bool = True

    def denied_name(self, status: os.stat_result, kind: AccessKind) -> str:
        """A name under which the rules deny the file, "" if none is known."""
        if not _has_other_names(status):
            return ""
        for name in self._names_by_inode().get(status.st_ino, ()):
            if self.denies(Access(kind, name)) and _is_same(name, status):
                return name
        return ""

    def may_be_incomplete(self, status: os.stat_result) -> bool:
        """Whether the file may have such a name among those that were too many to check."""
        if not _has_other_names(status):
            return False
        known = self._names_by_inode().get(status.st_ino, ())
        return not self._complete and len(known) < status.st_nlink

    def _names_by_inode(self) -> dict[int, list[str]]:
        """The names of all files in the places; they are searched once."""
        if self._names is None:
            self._names = {}
            home = Path.home()
            for place in (self.cwd, *_secret_places(home)):
                # the home is too large to walk, so that only its own files are looked at
                for count, entry in enumerate(entries_below(place, "*" if place == home else "")):
                    if count >= MAX_ENTRIES:
                        self._complete = False
                        break
                    self._names.setdefault(entry.inode(), []).append(entry.path)
        return self._names


def _has_other_names(status: os.stat_result) -> bool:
    """Whether a file has more than one name; of a directory, the count says something else."""
    return status.st_nlink > 1 and stat.S_ISREG(status.st_mode)


def file_status(access: Access) -> os.stat_result | None:
    """The status of the file that a read or write access names; None if it does not exist."""
    if access.kind not in (AccessKind.READ, AccessKind.WRITE):
        return None
    try:
        return os.lstat(access.target)
    except (OSError, ValueError):
        return None


def _is_same(name: str, status: os.stat_result) -> bool:
    """Whether a name is of this file; an inode has its number only on its own device."""
    try:
        return os.path.samestat(os.lstat(name), status)
    except OSError:
        return False  # deleted meanwhile


def _secret_places(home: Path) -> set[Path]:
    """The home directory and the directories in it that the protected names lie in."""
    names = {rule.pattern.removeprefix("/**/") for rule in protected_rules()}
    fixed = {name for name in names if not name.startswith("/")}
    return {(home / name).parent for name in fixed}
