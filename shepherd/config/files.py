"""Private files, written so that a reader sees the old text or the new one, never a part."""

import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def make_private_directory(path: Path) -> None:
    """Create `path` for this user alone; parents as usual. An existing one stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """Replace the file at `path` atomically; it is readable by this user alone from its creation.

    A symbolic link is followed, so that it stays one.
    """
    target = path.resolve()
    make_private_directory(target.parent)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
