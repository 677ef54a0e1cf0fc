"""Recognising a file that is denied under another of its names."""

import os
from collections.abc import Generator
from pathlib import Path

from shepherd.tools.base import Access, AccessKind, ToolContext
from shepherd.tools.permissions.defaults import protected_rules

MAX_ENTRIES = 20_000
"""So many names are looked at in one directory tree; hard links to others are not recognised."""


class HardLinks:
    """The names that files have nearby, looked for once.

    Nearby is the working directory with what is below it, and in the home directory the usual
    places of secrets.
    """

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._names: dict[int, list[str]] | None = None

    def denied_name(self, status: os.stat_result, kind: AccessKind) -> str:
        """A name of the file under which the rules deny it, "" if none is known."""
        if status.st_nlink < 2:
            return ""
        for name in self._by_inode().get(status.st_ino, ()):
            denied = self._context.denies(Access(kind, name))
            if denied and _is_same(name, status):
                return name
        return ""

    def _by_inode(self) -> dict[int, list[str]]:
        if self._names is None:
            self._names = {}
            home = Path.home()
            for place in (self._context.cwd, *_secret_places(home)):
                for entry in _files(place, deep=place != home):
                    self._names.setdefault(entry.inode(), []).append(entry.path)
        return self._names


def _is_same(name: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.lstat(name), status)
    except OSError:
        return False  # deleted meanwhile


def _secret_places(home: Path) -> set[Path]:
    """The home directory and the directories in it that the protected names lie in."""
    names = {rule.pattern.removeprefix("/**/") for rule in protected_rules()}
    fixed = {name for name in names if not name.startswith("/")}
    return {(home / name).parent for name in fixed}


def _files(root: Path, *, deep: bool) -> Generator[os.DirEntry[str]]:
    """The files in a directory and, if `deep`, below it; links are not followed."""
    pending, count = [root], 0
    while pending and count < MAX_ENTRIES:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_file(follow_symlinks=False):
                        yield entry
                    elif deep and entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
        except OSError:
            continue  # closed to us: nothing in it can be recognised
