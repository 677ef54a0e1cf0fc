"""A folder of state files that several processes share, with a maximum size."""

import fcntl
import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from time import monotonic, sleep, time
from typing import BinaryIO

logger = logging.getLogger(__name__)

SUFFIX = ".state"
_UNFINISHED = ".unfinished"
_LOCK = "lock"

LOCK_SECONDS = 2.0
"""Seconds to wait for another process that is writing."""

CLOCK_SECONDS = 3600.0
"""Seconds that a file's time may be ahead of the clock, as on a shared file system."""


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of the folder; `used` is the time of its last use, in seconds since the epoch."""

    path: Path
    bytes: int
    used: float


class StateFolder:
    """A folder that only its owner can read. Files are written atomically; the oldest go first."""

    def __init__(self, path: Path, capacity: int) -> None:
        """The first write creates the folder; raises OSError if it belongs to another user."""
        self.path = path
        self.capacity = capacity
        if path.exists():
            self._check()

    def version(self) -> int:
        """A number that changes when files are added or removed."""
        try:
            return self.path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def files(self) -> list[StateFile]:
        """All files, least recently used first.

        A time in the future comes from a wrong clock. It counts as long ago; otherwise the file
        would stay until the clock reaches that time.
        """
        files: list[StateFile] = []
        if not self.path.exists():
            return files
        future = time() + CLOCK_SECONDS
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX):
                    status = _status(entry)
                    if status is not None:
                        used = status.st_mtime if status.st_mtime < future else 0.0
                        files.append(StateFile(Path(entry.path), status.st_size, used))
        return sorted(files, key=lambda file: file.used)

    def touch(self, path: Path, used: float) -> None:
        """Set the time of a file's last use; the file may be missing."""
        try:
            os.utime(path, (used, used))
        except FileNotFoundError:
            return

    def write(
        self, name: str, size: int, used: float, fill: Callable[[BinaryIO], None]
    ) -> int | None:
        """Add a file of `size` bytes; less recently used files are removed to make room.

        Returns the number of removed files. Returns None if nothing was written, because there is
        no room or another process was writing for too long. Raises OSError.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check()
        with self._lock() as locked:
            if not locked:
                return None
            self._sweep()
            removed = self._make_room(size, used)
            if removed is not None:
                self._write(name, used, fill)
            return removed

    def _check(self) -> None:
        status = self.path.lstat()
        if not S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{self.path} is not a directory of this user")
        if status.st_mode & 0o077:
            self.path.chmod(0o700)

    def _make_room(self, size: int, used: float) -> int | None:
        files = self.files()
        over = sum(file.bytes for file in files) + size - self.capacity
        victims: list[StateFile] = []
        for file in files:
            if over <= 0:
                break
            if file.used >= used:
                return None
            victims.append(file)
            over -= file.bytes
        if over > 0:
            return None
        for victim in victims:
            victim.path.unlink(missing_ok=True)
        return len(victims)

    def _write(self, name: str, used: float, fill: Callable[[BinaryIO], None]) -> None:
        target = self.path / name
        unfinished = target.with_suffix(_UNFINISHED)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(unfinished, flags, 0o600), "wb") as file:
                fill(file)
            os.utime(unfinished, (used, used))
            unfinished.replace(target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def _sweep(self) -> None:
        """Remove unfinished files of processes that died. Requires the lock."""
        for path in self.path.glob(f"*{_UNFINISHED}"):
            path.unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Generator[bool]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self.path / _LOCK, flags, 0o600)
        try:
            yield _wait_for(handle)
        finally:
            os.close(handle)


def _wait_for(handle: int) -> bool:
    deadline = monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > deadline:
                return False
            sleep(0.02)
        else:
            return True


def _status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
