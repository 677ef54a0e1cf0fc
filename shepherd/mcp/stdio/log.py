"""The log files with the stderr of servers."""

import contextlib
import os
import re
from collections.abc import Collection
from pathlib import Path

from shepherd.config.files import make_private_directory

MAX_LOG_BYTES = 1 << 20
"""A longer log becomes the previous one, which replaces an older one."""
_MAX_LINE = 8192
_ERROR = re.compile(r"\b\w*Error\b|\berror:")


class ServerLog:
    """Appends to a private file of a limited size; secrets are replaced by stars.

    Errors of the disk are ignored, because a log must not end a server.
    """

    def __init__(self, path: Path, secrets: Collection[str] = ()) -> None:
        self._path = path
        self._secrets = [secret.encode() for secret in secrets if secret]
        self._pending = b""
        self.last_line = ""
        self._last_error = ""

    def feed(self, data: bytes) -> bool:
        """Take more output; whole lines are written."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _MAX_LINE:
            lines.append(self._pending)
            self._pending = b""
        if lines:
            self._write(lines)
        return True

    def close(self) -> None:
        """Write the rest."""
        if self._pending:
            self._write([self._pending])
            self._pending = b""

    def _write(self, lines: list[bytes]) -> None:
        hidden = [self._hidden(line) for line in lines]
        texts = [line.decode("utf-8", "replace").strip() for line in hidden]
        self._note_last(texts)
        with contextlib.suppress(OSError):
            make_private_directory(self._path.parent)
            if self._path.exists() and self._path.stat().st_size > MAX_LOG_BYTES:
                self._path.replace(self._path.with_suffix(".log.1"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(b"\n".join(hidden)[:MAX_LOG_BYTES] + b"\n")

    def _note_last(self, lines: list[str]) -> None:
        """Keep the last line, or the last one that names an error: Node prints more after it."""
        named = [line for line in lines if _ERROR.search(line)]
        if named:
            self._last_error = named[-1]
        words = [line for line in lines if any(map(str.isalnum, line))]
        self.last_line = self._last_error or (words[-1] if words else self.last_line)

    def _hidden(self, line: bytes) -> bytes:
        for secret in self._secrets:
            line = line.replace(secret, b"***")
        return line
