"""Replacing a file at a path whole or not at all."""

import errno
import os
import stat
from pathlib import Path

from shepherd.config.atomic import Attributes, replace_at
from shepherd.tools.files.opening import open_directory, status_at


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to the resolved `path` so that no reader ever sees a part of it.

    An existing file keeps its mode and owner. A new one gets 0666 without the umask's bits. Missing parents are made. Raises OSError: for a link in the path, and also when the
    existing file is read-only.
    """
    directory = open_directory(path.parent, create=True)
    try:
        old = regular_status(directory, path.name)
        replace_at(directory, path.name, data, _attributes(old))
        os.fsync(directory)
    finally:
        os.close(directory)


def regular_status(directory: int, name: str) -> os.stat_result | None:
    """The status of the file to be replaced, None if there is none; raises OSError."""
    status = status_at(directory, name)
    if status is not None and not os.access(name, os.W_OK, dir_fd=directory):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    return status


def _attributes(old: os.stat_result | None) -> Attributes:
    if old is None:
        return Attributes()
    return Attributes(stat.S_IMODE(old.st_mode), (old.st_uid, old.st_gid))
