"""API keys of the server: shown once, stored hashed, checked against the current file."""

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shepherd.config.files import exclusive, write_private
from shepherd.errors import ConfigError
from shepherd.server.access.key import NAME, ApiKey, OldSecret
from shepherd.server.access.key_file import UnknownVersionError, format_keys, parse_keys

KEY_PREFIX = "sk-shep-"
KEY_BYTES = 32
PREFIX_CHARACTERS = len(KEY_PREFIX) + 4


class KeyStoreError(ConfigError):
    """The key file can't be trusted or read, or a name is wrong; no key may then be accepted."""


def _now() -> datetime:
    return datetime.now(UTC)


class KeyStore:
    """The keys in the file at `path`; without the file, no key is valid.

    A clock that goes backwards does not make an expired key valid again.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] = _now) -> None:
        self.path = path
        self._clock = clock
        self._latest = clock()
        self._seen: tuple[int, ...] | None = None
        self._keys: list[ApiKey] = []

    def verify(self, key: str) -> str | None:
        """The name of `key`, None if it is not valid; otherwise as `find`."""
        entry = self.find(key)
        return None if entry is None or self.is_expired(entry) else entry.name

    def find(self, key: str) -> ApiKey | None:
        """The entry of `key`, be it expired; None if there is none.

        Sees changes of the file at once. Raises KeyStoreError if the file is unreadable, damaged,
        another user's or open to others. Takes the same time for every key.
        """
        digest, now = _digest(key), self._now()
        match = None
        for entry in self._current():
            for stored in entry.hashes(now):
                if hmac.compare_digest(stored, digest):
                    match = entry
        return match

    def is_expired(self, key: ApiKey) -> bool:
        """Whether the time of `key` is over."""
        return key.is_expired(self._now())

    def keys(self) -> list[ApiKey]:
        """All keys, oldest first; raises KeyStoreError."""
        return list(self._current())

    def get(self, name: str) -> ApiKey:
        """The key called `name`; raises KeyStoreError if there is none."""
        return _named(self.keys(), name)

    def add(self, name: str, change: Callable[[ApiKey], ApiKey] = lambda key: key) -> str:
        """Make a key called `name`; the secret is returned only once. Raises KeyStoreError.

        `change` receives the new entry and returns it with its restrictions.
        """
        if not re.fullmatch(NAME, name):
            raise KeyStoreError(
                f"{name!r} can't be a key's name: use up to 64 letters, digits, '.', '_' or '-', "
                "a letter or digit first."
            )
        secret = _new_secret()
        created = self._now().replace(microsecond=0)
        entry = change(ApiKey(name, secret[:PREFIX_CHARACTERS], _digest(secret), created))
        with exclusive(self.path):
            keys = self.keys()
            if any(k.name == name for k in keys):
                raise KeyStoreError(f"There is a key called {name} already; remove it first.")
            self._save([*keys, entry])
        return secret

    def rotate(self, name: str, grace: timedelta = timedelta()) -> str:
        """Give the key called `name` a new secret; the old one stays valid for `grace`.

        A secret from before the old one becomes invalid. Raises KeyStoreError.
        """
        secret = _new_secret()
        with exclusive(self.path):
            keys = self.keys()
            key = _named(keys, name)
            until = self._now().replace(microsecond=0) + grace
            new = replace(
                key,
                prefix=secret[:PREFIX_CHARACTERS],
                sha256=_digest(secret),
                old_secret=OldSecret(key.sha256, until) if grace else None,
            )
            self._save([new if k is key else k for k in keys])
        return secret

    def remove(self, name: str) -> None:
        """Make the key called `name` invalid at once; raises KeyStoreError if there is none."""
        with exclusive(self.path):
            keys = self.keys()
            removed = _named(keys, name)
            self._save([k for k in keys if k is not removed])

    def _now(self) -> datetime:
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _save(self, keys: list[ApiKey]) -> None:
        write_private(self.path, format_keys(keys))

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


def _named(keys: list[ApiKey], name: str) -> ApiKey:
    for key in keys:
        if key.name == name:
            return key
    raise KeyStoreError(f"No key is called {name}; `shepherd apikey list` shows all.")


def _new_secret() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _fingerprint(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size, status.st_mode)
