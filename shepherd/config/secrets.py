"""Keys of providers: from the environment, a private file or the system's keyring."""

import os
import stat
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.config.files import read_settings
from shepherd.config.provider import Provider, vendor_of
from shepherd.errors import ConfigError

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "shepherd"
"""The name of Shepherd's keys in the keyring."""

ENVIRONMENT = "env:"
_VISIBLE_CHARACTERS = 4
_MIN_MASKED_LENGTH = 16
"""Shorter keys are masked completely."""

_MIN_KEY_LENGTH = 12
"""Shorter values may be ordinary words."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A key, "" if there is none, and a description of its source."""

    value: str = field(default="", repr=False)
    source: str = ""

    @property
    def masked(self) -> str:
        """Enough of the key to tell keys apart: `sk-…abcd`."""
        if not self.value:
            return ""
        if len(self.value) < _MIN_MASKED_LENGTH:
            return "…"
        # `sk-` and its like tell whose key it is
        head = self.value[:3] if self.value[2:3] in ("-", "_") else ""
        return f"{head}…{self.value[-_VISIBLE_CHARACTERS:]}"


def keys_in(env: Mapping[str, str]) -> dict[str, str]:
    """The keys in the environment that are long enough to recognise, with their variables."""
    keys = {env[name].strip(): name for name in sorted(env) if name.endswith("_API_KEY")}
    return {key: name for key, name in keys.items() if len(key) >= _MIN_KEY_LENGTH}


class Secrets:
    """Finds and keeps the keys of providers."""

    def __init__(self, path: Path, env: Mapping[str, str]) -> None:
        self._path = path
        self._env = env

    def find(self, provider: Provider) -> Secret:
        """The provider's key; empty if it needs none or none is known.

        Raises ConfigError if the place that the provider names does not have it.
        """
        place = provider.api_key
        if place in ("file", "keyring"):
            described = str(self._path) if place == "file" else "the system's keyring"
            return _required(provider, self.read(provider.name, place), described)
        if place.startswith(ENVIRONMENT):
            variable = place.removeprefix(ENVIRONMENT)
            return _required(provider, self._env.get(variable, ""), variable)
        return Secret() if place == "none" else self._from_usual_variable(provider)

    def read(self, name: str, place: str) -> str:
        """The secret stored under `name` in `file` or `keyring`, "" if there is none."""
        if place != "keyring":
            self._check_private()
            return self._stored().get(name, "")
        with _keyring() as keyring:
            return keyring.get_password(SERVICE, name) or ""

    def has_keyring(self) -> bool:
        """Whether the system has a keyring that answers."""
        try:
            self.read("probe", "keyring")  # a system without one refuses any name
        except ConfigError:
            return False
        return True

    def delete(self, name: str, place: str) -> None:
        """Delete the secret stored under `name`, if there is one."""
        if place != "keyring":
            self._write(name, key=None)
            return
        with _keyring() as keyring:
            if keyring.get_password(SERVICE, name) is not None:
                keyring.delete_password(SERVICE, name)

    def store(self, name: str, key: str, place: str) -> None:
        """Store the key of the provider `name` in `file` or `keyring`; raises ConfigError."""
        if place != "keyring":
            self._write(name, key)
            return
        with _keyring():
            import keyring  # its function has types, the method of a keyring has none

            keyring.set_password(SERVICE, name, key)

    def forget(self, provider: Provider) -> None:
        """Delete the provider's stored key, if there is one."""
        if provider.api_key in ("file", "keyring"):
            self.delete(provider.name, provider.api_key)

    def _from_usual_variable(self, provider: Provider) -> Secret:
        """The key in the first of its vendor's usual variables that is set."""
        vendor = vendor_of(provider)
        variable = vendor.variable_in(self._env) if vendor else None
        return Secret(self._env[variable].strip(), variable) if variable else Secret()

    def _stored(self) -> dict[str, str]:
        """The keys in the file, by the names of their providers."""
        try:
            data = tomllib.loads(read_settings(self._path))
        except (tomllib.TOMLDecodeError, RecursionError):  # its message may quote a key
            raise ConfigError(
                f'{self._path}: not valid TOML; it holds one line NAME = "KEY" per provider'
            ) from None
        return {name: key for name, key in data.items() if isinstance(key, str)}

    def _check_private(self) -> None:
        """Raise ConfigError if other users may read or change the file."""
        try:
            result = self._path.stat()
        except FileNotFoundError:
            return
        mode = stat.S_IMODE(result.st_mode)
        if result.st_uid != os.getuid() or mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(
                f"{self._path} holds keys and must be yours alone, but its mode is {mode:04o}: "
                f"run `chmod 600 {self._path}`; if others use this machine, renew the keys."
            )

    def _write(self, name: str, key: str | None) -> None:
        """Set a key, or delete it for None; the file is always private afterwards."""
        from shepherd.config.edit import Document, change_document

        if key is None and not self._path.exists():
            return  # nothing to delete, and a deletion makes no file
        self._stored()  # raises an error that does not quote the file, which tomlkit's would

        def change(document: Document) -> None:
            document.pop(name, None)
            if key is not None:
                document[name] = key

        change_document(self._path, change)
        self._path.chmod(0o600)  # a file that needed no change was not written, and keeps its mode


def _required(provider: Provider, key: str, place: str) -> Secret:
    """The key that was read at a place; raises ConfigError if it is empty."""
    key = key.strip()
    if not key:
        name = provider.name
        raise ConfigError(
            f"The key of provider {name} is missing in {place}; "
            f"`shepherd provider set {name} api-key -` stores it."
        )
    return Secret(key, place)


@contextmanager
def _keyring() -> Generator["KeyringBackend"]:
    """The system's keyring; its errors become ConfigErrors."""
    import keyring
    from keyring.errors import KeyringError, NoKeyringError

    try:
        yield keyring.get_keyring()
    except NoKeyringError:
        raise ConfigError(
            "This system has no usable keyring; keep the key in a file "
            "(`--api-key -`) or in a variable (`--api-key-env NAME`)."
        ) from None
    except KeyringError as error:
        raise ConfigError(f"The system's keyring refuses: {error}") from error
