"""The changes of single paths, of which an effect consists."""

import errno
import os
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

OPAQUE = "user.overlay.opaque"
"""The kernel's mark of a directory that hides the one below it."""


class Deed(StrEnum):
    """What happened to a path."""

    MADE = "made"
    CHANGED = "changed"
    DELETED = "deleted"
    MODE = "mode"  # only the mode differs


class Sort(StrEnum):
    """What a path is, or was before it was deleted."""

    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"


Marks = tuple[int, int, int, int]
"""Mode, inode, size and time of a file: a file that has the same ones is the same."""


class Change(Struct, frozen=True):
    """One path of an effect, relative to the root; `size` is in bytes, of files only.

    What was renamed is MADE, and `moved_from` is the DELETED path that was the same. `target` is
    that of a link. `before` has the marks of what the change replaces, None if that is nothing.
    """

    path: str
    deed: Deed
    sort: Sort
    mode: int = 0
    size: int = 0
    target: str = ""
    moved_from: str = ""
    before: Marks | None = None


def status_of(path: Path | str, directory: int | None = None) -> os.stat_result | None:
    """The status of a path, never of a link's target; None if nothing is there."""
    try:
        return os.stat(path, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def marks_of(status: os.stat_result) -> Marks:
    """The marks of what has this status."""
    return (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns)


def marks_at(path: Path | str, directory: int | None = None) -> Marks | None:
    """The marks of what is at a path; None if nothing is there."""
    status = status_of(path, directory)
    return None if status is None else marks_of(status)


def attribute(path: Path, name: str) -> bytes | None:
    """An extended attribute, None if it is not set, or may not be read."""
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP, errno.EACCES):
            return None
        raise
