"""The API keys in a private file."""

import os
import stat
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from shepherd.config.files import exclusive, write_private
from shepherd.server.access.key import ApiKey
from shepherd.server.access.key_file import UnknownVersionError, format_keys, parse_keys
from shepherd.server.access.keys import KeyChange, Keys, KeyStoreError, now

__all__ = ["KeyStore", "KeyStoreError"]


class KeyStore(Keys):
    """The keys in the file at `path`; without the file, no key is valid.

    Changes of the file are seen at once. A file that is unreadable, damaged, another user's or
    open to others raises KeyStoreError.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] = now) -> None:
        super().__init__(clock)
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._keys: list[ApiKey] = []

    def keys(self) -> list[ApiKey]:
        """See `Keys`."""
        return list(self._current())

    def _change(self, change: KeyChange) -> None:
        with exclusive(self.path):
            write_private(self.path, format_keys(change(self.keys())))

    def _current(self) -> list[ApiKey]:
        try:
            status = self.path.stat()
            if self._seen != _fingerprint(status):
                self._reload()
        except FileNotFoundError:
            self._seen, self._keys = None, []
        except OSError as error:
            raise self._broken(f"can't be read: {error.strerror}") from error
        return self._keys

    def _reload(self) -> None:
        """Read the file; the previous keys are dropped first."""
        self._seen, self._keys = None, []
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (os.geteuid(), 0):
                raise self._broken(f"another user's (uid {status.st_uid}); make keys of your own")
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise self._broken(f"open to other users; run: chmod 600 {self.path}")
            content = file.read()
        self._keys = self._parse(content)
        self._seen = _fingerprint(status)

    def _parse(self, content: bytes) -> list[ApiKey]:
        try:
            return parse_keys(content)
        except UnknownVersionError as error:
            raise self._broken(f"of unknown version {error}") from error
        except (ValueError, RecursionError) as error:
            raise self._broken("damaged; repair it, or delete it and make new keys") from error

    def _broken(self, problem: str) -> KeyStoreError:
        return KeyStoreError(f"The key file {self.path} is {problem}")


def _fingerprint(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size, status.st_mode)
