"""Opening exactly the file that the permission was given for."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.paths import reason


@contextmanager
def file_errors(shown: str) -> Generator[None]:
    """Turn OSError into a ToolError that names the path as the model gave it."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(f"no such file: {shown}") from error
    except FileExistsError as error:
        raise ToolError(f"not a directory: {os.path.dirname(shown)}") from error  # noqa: PTH120 - as given
    except IsADirectoryError as error:
        raise ToolError(f"is a directory: {shown}") from error
    except OSError as error:
        raise ToolError(f"{reason(error)}: {shown}") from error


def check_regular(path: Path) -> os.stat_result:
    """The status of a regular file, without opening it; raises OSError for anything else."""
    return _regular(path, path.lstat())


def open_regular(path: Path) -> int:
    """A descriptor for reading the regular file at the resolved `path`.

    Never waits on a FIFO, never follows a link that was put there since; raises OSError.
    """
    check_regular(path)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(path, flags)
    try:
        _regular(path, os.fstat(descriptor))
        check_place(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_directory(path: Path) -> int:
    """A descriptor of the directory at the resolved `path`; raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        check_place(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_place(descriptor: int, path: Path) -> None:
    """Raise OSError if the descriptor's file does not lie at `path` (a parent was swapped)."""
    link = f"/proc/self/fd/{descriptor}"
    try:
        real = os.readlink(link)  # noqa: PTH115 - Path would normalise it
    except OSError:
        real = os.path.realpath(path)
    if real != str(path):
        raise OSError(errno.ESTALE, "moved while it was opened", str(path))


def _regular(path: Path, status: os.stat_result) -> os.stat_result:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return status
