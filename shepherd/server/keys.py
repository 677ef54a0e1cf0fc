"""API keys of the server: shown once, stored hashed, checked against the current file."""

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from shepherd.config.files import exclusive, write_private
from shepherd.errors import ConfigError

KEY_PREFIX = "sk-shep-"
KEY_BYTES = 32
PREFIX_CHARACTERS = len(KEY_PREFIX) + 4
VERSION = 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class KeyStoreError(ConfigError):
    """The key file can't be trusted or read, or a name is wrong; no key may then be accepted."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The stored data of a key.

    The hash is a plain SHA-256: slow hashes protect secrets that can be guessed, which 256 random
    bits can't be. `prefix` helps the owner to recognise the key.
    """

    name: str
    prefix: str
    sha256: str
    created: str


class KeyStore:
    """The keys in the file at `path`; without the file, no key is valid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._keys: list[ApiKey] = []

    def verify(self, key: str) -> str | None:
        """The name of `key`, None if it is not valid.

        Sees changes of the file at once. Raises KeyStoreError if the file is unreadable, damaged,
        another user's or open to others. Takes the same time for every key.
        """
        digest = _digest(key)
        name = None
        for entry in self._current():
            if hmac.compare_digest(entry.sha256, digest):
                name = entry.name
        return name

    def keys(self) -> list[ApiKey]:
        """All keys, oldest first; raises KeyStoreError."""
        return list(self._current())

    def add(self, name: str) -> str:
        """Make a key called `name`; it is returned only once. Raises KeyStoreError."""
        if not _NAME.fullmatch(name):
            raise KeyStoreError(
                f"{name!r} can't be a key's name: use up to 64 letters, digits, '.', '_' or '-', "
                "a letter or digit first."
            )
        key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        entry = ApiKey(name, key[:PREFIX_CHARACTERS], _digest(key), created)
        with exclusive(self.path):
            keys = self.keys()
            if any(k.name == name for k in keys):
                raise KeyStoreError(f"There is a key called {name} already; remove it first.")
            self._save([*keys, entry])
        return key

    def remove(self, name: str) -> None:
        """Make the key called `name` invalid at once; raises KeyStoreError if there is none."""
        with exclusive(self.path):
            keys = self.keys()
            kept = [k for k in keys if k.name != name]
            if len(kept) == len(keys):
                raise KeyStoreError(f"No key is called {name}; `shepherd apikey list` shows all.")
            self._save(kept)

    def _save(self, keys: list[ApiKey]) -> None:
        data = {"version": VERSION, "keys": [asdict(key) for key in keys]}
        write_private(self.path, json.dumps(data, indent=2) + "\n")

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
            data = cast(dict[str, Any], json.loads(content))
            if data["version"] != VERSION:
                raise self._broken(f"of unknown version {data['version']}")
            return [_entry(item) for item in data["keys"]]
        except (ValueError, TypeError, KeyError) as error:
            raise self._broken("damaged; repair it, or delete it and make new keys") from error

    def _broken(self, problem: str) -> KeyStoreError:
        return KeyStoreError(f"The key file {self.path} is {problem}")


def _entry(item: dict[str, object]) -> ApiKey:
    fields = {name: item[name] for name in ("name", "prefix", "sha256", "created")}
    if not all(isinstance(value, str) for value in fields.values()):
        raise TypeError("all fields of a key are texts")
    return ApiKey(**cast(dict[str, str], fields))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _fingerprint(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size, status.st_mode)
