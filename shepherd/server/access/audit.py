"""The audit: a private file with a line for each tool that clients had the server run."""

import json
import logging
import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shepherd.config.files import exclusive
from shepherd.errors import ShepherdError

OLD_FILES = 3
"""Full files that are kept: FILE.1 is the newest of them."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

logger = logging.getLogger(__name__)


class AuditError(ShepherdError):
    """A line can't be written, and the settings demand one."""


@dataclass(slots=True)
class AuditLog:
    """Writes lines to the file at `path`; without one there is no audit.

    A file of more than `max_bytes` is renamed, and a new one begins. If a line can't be written,
    the log says so once; if it is `required`, `begin` then raises AuditError.
    """

    path: Path | None = None
    max_bytes: int = 16 * 1024 * 1024
    required: bool = False
    _warned: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, entry: Mapping[str, object]) -> None:
        """Write a line before a call, if lines are required; raises AuditError if that fails."""
        if not self.required:
            return
        try:
            self._append(entry)
        except OSError as error:
            self._warn(error)
            raise AuditError("the audit of tool calls can't be written") from error

    def end(self, entry: Mapping[str, object]) -> None:
        """Write the line of a call that has ended."""
        try:
            self._append(entry)
        except OSError as error:
            self._warn(error)
        else:
            self._warned = False

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            logger.error("The audit of tool calls can't be written: %s", error)

    def _append(self, entry: Mapping[str, object]) -> None:
        if self.path is None:
            if self.required:
                raise FileNotFoundError("there is no file for it")
            return
        line = json.dumps(entry, ensure_ascii=True, default=str).encode() + b"\n"
        with self._lock, exclusive(self.path):
            if self._size() + len(line) > self.max_bytes:
                self._rotate(self.path)
            _append_line(self.path, line)

    def _size(self) -> int:
        assert self.path is not None
        try:
            return self.path.lstat().st_size
        except FileNotFoundError:
            return 0

    def _rotate(self, path: Path) -> None:
        for number in range(OLD_FILES, 0, -1):
            older = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number}"))


def _append_line(path: Path, line: bytes) -> None:
    """Add a line to a private file; raises OSError, and leaves no part of a line behind."""
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        if status.st_uid != os.geteuid():
            raise OSError(f"{path} is another user's")
        if stat.S_IMODE(status.st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)
        written = os.write(descriptor, line)
        if written != len(line):
            os.ftruncate(descriptor, status.st_size)
            raise OSError(f"{path}: no space is left")
    finally:
        os.close(descriptor)
