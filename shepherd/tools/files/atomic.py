"""Replacing a file whole or not at all."""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from shepherd.tools.files.opening import open_directory


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write `data` to the resolved `path` so that no reader ever sees a part of it.

    An existing file keeps its mode and owner, a new one gets `mode` or 0666 without the umask's
    bits. Missing parents are made. Raises OSError, also when the existing file is read-only.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = open_directory(path.parent)
    try:
        _replace(directory, path.name, data, mode)
        os.fsync(directory)
    finally:
        os.close(directory)


def _replace(directory: int, name: str, data: bytes, mode: int | None) -> None:
    old = _status(directory, name)
    if old is not None and not os.access(name, os.W_OK, dir_fd=directory):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    temporary = f".shepherd-{secrets.token_hex(8)}.tmp"
    private = old is not None or mode is not None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600 if private else 0o666, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            _set_attributes(file.fileno(), old, mode)
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _set_attributes(descriptor: int, old: os.stat_result | None, mode: int | None) -> None:
    if old is not None:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
        mode = stat.S_IMODE(old.st_mode) if mode is None else mode
    if mode is not None:
        os.fchmod(descriptor, mode)


def _status(directory: int, name: str) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", name)
    return status
