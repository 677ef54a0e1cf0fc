"""Private files, written so that a reader sees the old text or the new one, never a part."""

import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from shepherd.config.atomic import Attributes, remove_leftovers, replace_at
from shepherd.errors import ConfigError


def make_private_directory(path: Path) -> None:
    """Create `path` for this user alone; parents as usual. An existing one stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, content: str | bytes) -> None:
    """Replace the file at `path` atomically; it is readable by this user alone from its creation.

    A symbolic link is followed, so that it stays one. What a killed writer left is removed.
    """
    target = path.resolve()
    make_private_directory(target.parent)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_leftovers(directory, target.name)
        data = content.encode() if isinstance(content, str) else content
        replace_at(directory, target.name, data, Attributes(mode=0o600))
    finally:
        os.close(directory)


def read_text(path: Path, limit: int) -> str:
    """The text of the file at `path`, "" for the null device.

    Raises FileNotFoundError; ConfigError for what can't be read, is longer than `limit` bytes or is
    no file at all, like a pipe, which would be waited for.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            _check_kind(path, os.fstat(descriptor))
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ConfigError(f"{path}: too large for settings: over {limit} bytes")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {error}") from error


def _check_kind(path: Path, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode) or os.path.samestat(found, Path(os.devnull).stat()):
        return
    raise ConfigError(f"{path}: is not a regular file; put one there, or remove it")


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Hold the lock that belongs to the file at `path`; waits for another process to give it up."""
    target = path.resolve()
    make_private_directory(target.parent)
    lock = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
