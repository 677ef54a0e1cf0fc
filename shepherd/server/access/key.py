"""An API key: what it may do, until when, and how much; and the text of the file of keys.

The file has version 2. Keys of version 1 had no restrictions.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, cast

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

MAX_LIMIT = 10**12
MAX_NOTE = 200
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MODEL_PATTERN = r"[^\s\x00-\x1f\x7f]{1,200}"


class KeyScope(StrEnum):
    """A part of the server that a key opens.

    `chat` generates text, `embed` embeds and ranks texts, `tools` runs tools and routes of plugins,
    `approve` answers approvals of a shared session and of the agent, `admin` is everything that
    concerns others.
    """

    CHAT = "chat"
    EMBED = "embed"
    TOOLS = "tools"
    APPROVE = "approve"
    ADMIN = "admin"


USER_SCOPES = frozenset({KeyScope.CHAT, KeyScope.EMBED, KeyScope.TOOLS})
"""The scopes of a key unless it names some, and of keys of version 1.

Nobody approves calls of tools, their own included, with a key that was not made for it.
"""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """How much a key may use in a minute and in a day; None is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_day: int | None = None

    @property
    def counts_tokens(self) -> bool:
        """Whether a request's tokens must be known."""
        return self.tokens_per_minute is not None or self.tokens_per_day is not None


@dataclass(frozen=True, slots=True)
class OldSecret:
    """The secret before the last rotation, which is valid until a time."""

    sha256: str
    until: datetime


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The stored data of a key.

    The hash is a plain SHA-256: slow hashes protect secrets that can be guessed, which 256 random
    bits can't be. `prefix` helps the owner to recognise the key. `models` are patterns of names
    with `*`; without any, all models are allowed.
    """

    name: str
    prefix: str
    sha256: str
    created: datetime
    note: str = ""
    expires: datetime | None = None
    scopes: frozenset[KeyScope] = USER_SCOPES
    models: Sequence[str] = ()
    limits: KeyLimits = KeyLimits()
    old_secret: OldSecret | None = None

    def is_expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires is not None and now >= self.expires

    def allows_model(self, name: str) -> bool:
        """Whether it may use the model of this name."""
        return not self.models or any(fnmatchcase(name, pattern) for pattern in self.models)

    def hashes(self, now: datetime) -> list[str]:
        """The hashes of the secrets that open the server with this key."""
        old = self.old_secret
        return [self.sha256] if old is None or now >= old.until else [self.sha256, old.sha256]


def format_time(moment: datetime) -> str:
    """A time as it is stored and shown."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


VERSION = 2


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("times are texts")
    return value


_Text = Annotated[str, Field(strict=True)]
_Time = Annotated[AwareDatetime, BeforeValidator(_text)]
_Hash = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}\z")]
_Limit = Annotated[int, Field(strict=True, ge=1, le=MAX_LIMIT)] | None
_Name = Annotated[str, Field(strict=True, pattern=rf"^{NAME}\z")]
_Model = Annotated[str, Field(strict=True, pattern=rf"^{MODEL_PATTERN}\z")]


class _Entry(BaseModel):
    """The fields of every version."""

    name: _Name
    prefix: _Text
    sha256: _Hash
    created: _Time


class _Strict(BaseModel):
    """An unknown field could be a restriction."""

    model_config = ConfigDict(extra="forbid")


class _Limits(_Strict):
    requests_per_minute: _Limit
    tokens_per_minute: _Limit
    requests_per_day: _Limit
    tokens_per_day: _Limit


class _OldSecret(_Strict):
    sha256: _Hash
    until: _Time


class _Entry2(_Entry, _Strict):
    note: Annotated[str, Field(strict=True, max_length=MAX_NOTE)]
    expires: _Time | None
    scopes: list[KeyScope]
    models: list[_Model]
    limits: _Limits
    old_secret: _OldSecret | None


class _File1(_Strict):
    version: int
    keys: list[_Entry]


class _File2(_Strict):
    version: int
    keys: list[_Entry2]


class UnknownVersionError(ValueError):
    """The file was written by another version of Shepherd."""


def parse_keys(content: bytes) -> list[ApiKey]:
    """The keys of a file; raises ValueError for anything that this version does not write."""
    data: object = json.loads(content)
    if not isinstance(data, dict):
        raise ValueError("not a key file")
    version = cast(dict[str, Any], data).get("version")
    if version == VERSION:
        keys = [_key_2(entry) for entry in _File2.model_validate(data).keys]
    elif type(version) is int and version == 1:
        keys = [_key_1(entry) for entry in _File1.model_validate(data).keys]
    else:
        raise UnknownVersionError(str(version))
    if len({key.name for key in keys}) != len(keys):
        raise ValueError("two keys have one name")
    return keys


def format_keys(keys: list[ApiKey]) -> str:
    """The text of a file with these keys."""
    return json.dumps({"version": VERSION, "keys": [_entry(key) for key in keys]}, indent=2) + "\n"


def parse_entries(texts: Iterable[str]) -> list[ApiKey]:
    """The keys of texts from `format_entry`; raises ValueError as `parse_keys`."""
    entries = [json.loads(text) for text in texts]
    return parse_keys(json.dumps({"version": VERSION, "keys": entries}).encode())


def format_entry(key: ApiKey) -> str:
    """One key as a text."""
    return json.dumps(_entry(key))


def _key_1(entry: _Entry) -> ApiKey:
    return ApiKey(entry.name, entry.prefix, entry.sha256, entry.created)


def _key_2(entry: _Entry2) -> ApiKey:
    old = entry.old_secret
    return ApiKey(
        entry.name,
        entry.prefix,
        entry.sha256,
        entry.created,
        note=entry.note,
        expires=entry.expires,
        scopes=frozenset(entry.scopes),
        models=tuple(entry.models),
        limits=KeyLimits(**entry.limits.model_dump()),
        old_secret=None if old is None else OldSecret(old.sha256, old.until),
    )


def _entry(key: ApiKey) -> dict[str, object]:
    old = key.old_secret
    return {
        "name": key.name,
        "prefix": key.prefix,
        "sha256": key.sha256,
        "created": format_time(key.created),
        "note": key.note,
        "expires": None if key.expires is None else format_time(key.expires),
        "scopes": [scope.value for scope in KeyScope if scope in key.scopes],
        "models": list(key.models),
        "limits": asdict(key.limits),
        "old_secret": None
        if old is None
        else {"sha256": old.sha256, "until": format_time(old.until)},
    }
