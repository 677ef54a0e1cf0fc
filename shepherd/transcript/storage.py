"""Where the lines of sessions are kept: files, or rows of a database."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from shepherd.config.files import make_private_directory
from shepherd.errors import SessionError, SessionOpenError


class SessionLog(Protocol):
    """The lines of one session, which no other process can write meanwhile.

    All methods raise OSError or SessionError; what was written before then stays.
    """

    def read(self) -> bytes:
        """All lines with their newlines; the last one may be incomplete."""
        ...

    def cut(self, length: int) -> None:
        """Remove an incomplete last line, which begins after `length` bytes."""

    def append(self, data: bytes) -> None:
        """Add whole lines, all or none; a killed process does not lose them."""

    def sync(self) -> None:
        """Make all lines durable."""

    def release(self) -> None:
        """Let other processes write the session; never raises."""


class SessionStorage(Protocol):
    """The sessions in one place; all methods raise SessionError."""

    def name(self, id: str) -> str:
        """The session's name in messages."""
        ...

    def ids(self) -> list[str]:
        """The ids of all sessions, the one that changed last first."""
        ...

    def headers(self) -> Iterator[tuple[str, bytes]]:
        """The ids in the same order, each with its first line, b"" if it can't be read."""
        ...

    def read(self, id: str) -> bytes:
        """The lines of a session, without locking it."""
        ...

    def modified(self, id: str) -> float:
        """The time of the last change in seconds since 1970; 0 if there is no such session."""
        ...

    def create(self, id: str, notify: Callable[[str], None]) -> SessionLog:
        """A new session; `notify` gets a sentence if lines can only be saved later."""
        ...

    def open(self, id: str, notify: Callable[[str], None]) -> SessionLog:
        """An existing session; raises SessionError if it is open in another process."""
        ...

    def delete(self, id: str) -> None:
        """Delete a session; raises SessionError if it is open elsewhere."""


MAX_HEADER = 1 << 24
"""The limit of the first line in bytes; it holds the system message."""


class SessionFiles:
    """The `SessionStorage` in a directory, which need not exist."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def name(self, id: str) -> str:
        """The path of a session's file, for messages."""
        return str(self._path(id))

    def ids(self) -> list[str]:
        """The ids of all sessions, the one that changed last first; ids decide between equal times.

        Empty files are left out: their processes ended before the first message.
        """
        files = [path for path in self._directory.glob("*.jsonl") if _size(path) != 0]
        files.sort(key=lambda path: (_modified(path), path.stem), reverse=True)
        return [path.stem for path in files]

    def headers(self) -> Iterator[tuple[str, bytes]]:
        """The ids in the same order, each with its first line, b"" if it can't be read."""
        for session_id in self.ids():
            try:
                with self._path(session_id).open("rb") as file:
                    yield session_id, file.readline(MAX_HEADER)
            except OSError:
                yield session_id, b""

    def read(self, id: str) -> bytes:
        """The lines of a session, without locking it."""
        path = self._path(id)
        try:
            return path.read_bytes()
        except OSError as error:
            raise SessionError(f"{path}: can't be read: {error.strerror}") from error

    def modified(self, id: str) -> float:
        """The time of the last change in seconds since 1970; 0 if there is no such session."""
        return _modified(self._path(id)) / 1e9

    def create(self, id: str, notify: Callable[[str], None]) -> "FileLog":
        """A new session with an empty file; raises SessionError or OSError."""
        make_private_directory(self._directory)
        return FileLog(self._path(id), os.O_CREAT | os.O_EXCL)

    def open(self, id: str, notify: Callable[[str], None]) -> "FileLog":
        """An existing session; raises SessionError if it is open in another process."""
        return FileLog(self._path(id))

    def delete(self, id: str) -> None:
        """Delete a session; raises SessionError if it is open in another process."""
        log = FileLog(self._path(id))
        try:
            self._path(id).unlink(missing_ok=True)
        finally:
            log.release()

    def _path(self, id: str) -> Path:
        return self._directory / f"{id}.jsonl"


class FileLog:
    """The `SessionLog` in a file, which is locked until `release`.

    The kernel has each line when `append` returns. Only a power failure before `sync` loses more.
    """

    def __init__(self, path: Path, flags: int = 0) -> None:
        self._descriptor = _locked(path, os.O_RDWR | os.O_APPEND | flags)

    def read(self) -> bytes:
        """All lines with their newlines; the last one may be incomplete."""
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            return file.read()

    def cut(self, length: int) -> None:
        """Remove an incomplete last line, which begins after `length` bytes."""
        os.ftruncate(self._descriptor, length)

    def append(self, data: bytes) -> None:
        """Add whole lines, or none if the disk is full."""
        before = os.fstat(self._descriptor).st_size
        try:
            while data:  # a write may take only a part
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            with suppress(OSError):  # else readers skip the incomplete last line
                self.cut(before)
            raise

    def sync(self) -> None:
        """Make all lines durable."""
        os.fsync(self._descriptor)

    def release(self) -> None:
        """Free the lock, so that other processes can write the session."""
        os.close(self._descriptor)


def _locked(path: Path, flags: int) -> int:
    """A descriptor of the file with its lock, which the kernel frees if the process is killed."""
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise SessionError(f"{path}: can't be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise SessionOpenError(path.stem) from error
    return descriptor


def _size(path: Path) -> int | None:
    """The size in bytes; None if it is unknown, and opening the file then reports the error."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def _modified(path: Path) -> int:
    """The time of the last change in nanoseconds."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # deleted since the directory was listed
        return 0
