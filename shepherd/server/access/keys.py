"""API keys of the server: shown once, stored hashed, checked against the current ones."""

import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, structs

from shepherd.config.files import exclusive, write_private
from shepherd.errors import ConfigError
from shepherd.server.access.key import (
    NAME,
    ApiKey,
    OldSecret,
    UnknownVersionError,
    format_keys,
    parse_keys,
)

KEY_PREFIX = "sk-shep-"
KEY_BYTES = 32
PREFIX_CHARACTERS = len(KEY_PREFIX) + 4

KeyChange: TypeAlias = Callable[[list[ApiKey]], list[ApiKey]]
"""All keys after a change; it may run again after a failure."""


class KeyStoreError(ConfigError):
    """The keys can't be trusted or read, or a name is wrong; no key may then be accepted."""


def now() -> datetime:
    """The time of this machine."""
    return datetime.now(UTC)


class KeyNameError(KeyStoreError):
    """A name is wrong, has a key already, or has none."""


class Keys(ABC):
    """The keys of a server.

    A clock that goes backwards does not make an expired key valid again.
    """

    def __init__(self, clock: Callable[[], datetime] = now) -> None:
        self._clock = clock
        self._latest = clock()

    @abstractmethod
    def keys(self) -> list[ApiKey]:
        """All keys, oldest first; raises KeyStoreError."""

    @abstractmethod
    def _current(self) -> Iterable[ApiKey]:
        """The keys that admit a new request; raises KeyStoreError."""

    @abstractmethod
    def _change(self, change: KeyChange) -> None:
        """Replace the keys, while no other process can; raises KeyStoreError."""

    def verify(self, key: str) -> str | None:
        """The name of the `key` of a running request, None if it is not valid any more.

        Otherwise as `find`.
        """
        entry = self.find(key)
        return None if entry is None or self.is_expired(entry) else entry.name

    def find(self, key: str) -> ApiKey | None:
        """The entry of `key`, be it expired; None if there is none.

        Raises KeyStoreError if the keys can't be read or trusted. Takes the same time for every
        key.
        """
        return self._match(key, self._current())

    def is_expired(self, key: ApiKey) -> bool:
        """Whether the time of `key` is over."""
        return key.is_expired(self._now())

    def get(self, name: str) -> ApiKey:
        """The key called `name`; raises KeyStoreError if there is none."""
        return _named(self.keys(), name)

    def add(self, name: str, change: Callable[[ApiKey], ApiKey] = lambda key: key) -> str:
        """Make a key called `name`; the secret is returned only once. Raises KeyStoreError.

        `change` receives the new entry and returns it with its restrictions.
        """
        if not re.fullmatch(NAME, name):
            raise KeyNameError(
                f"{name!r} can't be a key's name: use up to 64 letters, digits, '.', '_' or '-', "
                "a letter or digit first."
            )
        secret = _new_secret()
        created = self._now().replace(microsecond=0)  # the file has whole seconds
        entry = change(ApiKey(name, secret[:PREFIX_CHARACTERS], _digest(secret), created))

        # the check is in the change: another process may add the name meanwhile
        def with_entry(keys: list[ApiKey]) -> list[ApiKey]:
            if any(k.name == name for k in keys):
                raise KeyNameError(f"There is a key called {name} already; remove it first.")
            return [*keys, entry]

        self._change(with_entry)
        return secret

    def rotate(self, name: str, grace: timedelta = timedelta()) -> str:
        """Give the key called `name` a new secret; the old one stays valid for `grace`.

        A secret from before the old one becomes invalid. Raises KeyStoreError.
        """
        secret = _new_secret()
        until = self._now().replace(microsecond=0) + grace

        def with_secret(key: ApiKey) -> ApiKey:
            return structs.replace(
                key,
                prefix=secret[:PREFIX_CHARACTERS],
                sha256=_digest(secret),
                old_secret=OldSecret(key.sha256, until) if grace else None,
            )

        self.update(name, with_secret)
        return secret

    def update(self, name: str, change: Callable[[ApiKey], ApiKey]) -> None:
        """Replace the key called `name` by what `change` makes of it; raises KeyStoreError."""

        def with_change(keys: list[ApiKey]) -> list[ApiKey]:
            key = _named(keys, name)
            return [change(key) if k is key else k for k in keys]

        self._change(with_change)

    def remove(self, name: str) -> None:
        """Make the key called `name` invalid; raises KeyStoreError if there is none."""

        def without_key(keys: list[ApiKey]) -> list[ApiKey]:
            removed = _named(keys, name)
            return [k for k in keys if k is not removed]

        self._change(without_key)

    def insert(self, new: Iterable[ApiKey]) -> list[str]:
        """Add existing keys whose names are free; returns the names of the others."""
        new, taken = list(new), list[str]()

        def with_new(keys: list[ApiKey]) -> list[ApiKey]:
            names = {key.name for key in keys}
            # replaced, not extended: a change may run again
            taken[:] = [key.name for key in new if key.name in names]
            return [*keys, *(key for key in new if key.name not in names)]

        self._change(with_new)
        return taken

    def _now(self) -> datetime:
        """The time; a clock that goes backwards stands still."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _match(self, key: str, entries: Iterable[ApiKey]) -> ApiKey | None:
        """The entry of a secret; all are compared, so that the time says nothing about them."""
        digest, now = _digest(key), self._now()
        match = None
        for entry in entries:
            for stored in entry.hashes(now):
                if hmac.compare_digest(stored, digest):
                    match = entry
        return match


class Admission(Struct, frozen=True):
    """The key with which a request came in."""

    key: ApiKey
    keys: Keys
    secret: str

    def is_valid(self) -> bool:
        """Whether the request may go on: its key exists, and can be checked."""
        try:
            return self.keys.verify(self.secret) is not None
        except ConfigError:
            return False


def _named(keys: list[ApiKey], name: str) -> ApiKey:
    """The key of this name; raises KeyStoreError if there is none."""
    for key in keys:
        if key.name == name:
            return key
    raise KeyNameError(f"No key is called {name}; `shepherd apikey list` shows all.")


def _new_secret() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class KeyStore(Keys):
    """The keys in the file at `path`; without the file, no key is valid.

    Changes of the file are seen at once. A file that is unreadable, damaged, another user's or
    open to others raises KeyStoreError.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] = now) -> None:
        super().__init__(clock)
        self.path = path
        self._read_version: tuple[int, ...] | None = None
        self._keys: list[ApiKey] = []
        self._reading = threading.Lock()  # a key must not be missing while another thread reads

    def keys(self) -> list[ApiKey]:
        """All keys, oldest first; raises KeyStoreError."""
        return list(self._current())

    def _change(self, change: KeyChange) -> None:
        with exclusive(self.path):
            write_private(self.path, format_keys(change(self.keys())))

    def _current(self) -> list[ApiKey]:
        """The keys of the file as it is now, which is read only if it has changed."""
        with self._reading:
            try:
                if self._read_version != _version(self.path.stat()):
                    self._reload()
            except FileNotFoundError:  # a file that was deleted makes its keys invalid
                self._read_version, self._keys = None, []
            except OSError as error:
                raise self._broken(f"can't be read: {error.strerror}") from error
            return self._keys

    def _reload(self) -> None:
        """Read the file; the previous keys are dropped first, so that none outlives an error."""
        self._read_version, self._keys = None, []
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (os.geteuid(), 0):  # root may write everything anyway
                raise self._broken(f"another user's (uid {status.st_uid}); make keys of your own")
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise self._broken(f"open to other users; run: chmod 600 {self.path}")
            content = file.read()
        self._keys = self._parse(content)
        self._read_version = _version(status)

    def _parse(self, content: bytes) -> list[ApiKey]:
        """The keys in the content of the file; raises KeyStoreError."""
        try:
            return parse_keys(content)
        except UnknownVersionError as error:
            raise self._broken(f"of unknown version {error}") from error
        except (ValueError, RecursionError) as error:
            raise self._broken("damaged; repair it, or delete it and make new keys") from error

    def _broken(self, problem: str) -> KeyStoreError:
        return KeyStoreError(f"The key file {self.path} is {problem}")


def _version(status: os.stat_result) -> tuple[int, ...]:
    """What differs between any two versions of a file."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size, status.st_mode)
