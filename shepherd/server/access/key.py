"""An API key: what it may do, until when, and how much; and the text of the file of keys."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any

from msgspec import Meta, Struct, convert, json

from shepherd.backends.tenant import Tenant, TenantKind

MAX_LIMIT = 10**12
MAX_NOTE = 200
MIN_SHARE, MAX_SHARE = 0.01, 1000.0
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MODEL_PATTERN = r"[^\s\x00-\x1f\x7f]{1,200}"

_Name = Annotated[str, Meta(pattern=rf"^{NAME}\Z")]
_Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Time = Annotated[datetime, Meta(tz=True)]
_Model = Annotated[str, Meta(pattern=rf"^{MODEL_PATTERN}\Z")]
_Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None
_Share = Annotated[float, Meta(ge=MIN_SHARE, le=MAX_SHARE)]


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
"""The scopes of a key unless it names some.

Nobody approves calls of tools, their own included, with a key that was not made for it.
"""


class KeyLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """How much a key may use in a minute and in a day; None is no limit."""

    requests_per_minute: _Limit = None
    tokens_per_minute: _Limit = None
    requests_per_day: _Limit = None
    tokens_per_day: _Limit = None

    @property
    def counts_tokens(self) -> bool:
        """Whether a request's tokens must be known."""
        return self.tokens_per_minute is not None or self.tokens_per_day is not None


class OldSecret(Struct, frozen=True, forbid_unknown_fields=True):
    """The secret before the last rotation, which is valid until a time."""

    sha256: _Hash
    until: _Time


class ApiKey(Struct, frozen=True, forbid_unknown_fields=True):
    """The stored data of a key.

    The hash is a plain SHA-256: slow hashes protect secrets that can be guessed, which 256 random
    bits can't be. `prefix` helps the owner to recognise the key. `models` are patterns of names
    with `*`; without any, all models are allowed. `share` and `kind` are as in `Tenant`.
    """

    name: _Name
    prefix: str
    sha256: _Hash
    created: _Time
    note: Annotated[str, Meta(max_length=MAX_NOTE)] = ""
    expires: _Time | None = None
    scopes: frozenset[KeyScope] = USER_SCOPES
    models: tuple[_Model, ...] = ()
    limits: KeyLimits = KeyLimits()
    old_secret: OldSecret | None = None
    share: _Share = 1.0
    kind: TenantKind = TenantKind.AGENT

    def tenant(self, *, shares_prompts: bool) -> Tenant:
        """Who uses an engine with the key."""
        return Tenant(self.name, self.share, self.kind, shares_prompts)

    def is_expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires is not None and now >= self.expires

    def allows_model(self, name: str) -> bool:
        """Whether it may use the model of this name."""
        return not self.models or any(fnmatchcase(name, pattern) for pattern in self.models)

    def hashes(self, now: datetime) -> list[str]:
        """The hashes of the secrets that open the server with this key."""
        old = self.old_secret
        if old is None or now >= old.until:
            return [self.sha256]
        return [self.sha256, old.sha256]


def format_time(moment: datetime) -> str:
    """A time as it is shown."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


VERSION = 2


class _KeyFile(Struct, forbid_unknown_fields=True):
    """The file of any version; only the version says what an entry of `keys` is."""

    version: int
    keys: list[dict[str, Any]]


class UnknownVersionError(ValueError):
    """The file was written by another version of Shepherd."""


def parse_keys(content: bytes) -> list[ApiKey]:
    """The keys of a file; raises ValueError for anything that this version does not write."""
    file = json.decode(content, type=_KeyFile)
    if file.version != VERSION:
        raise UnknownVersionError(str(file.version))
    keys = [_parse_entry(entry) for entry in file.keys]
    if len({key.name for key in keys}) != len(keys):
        raise ValueError("two keys have one name")
    return keys


def _parse_entry(entry: dict[str, Any]) -> ApiKey:
    """A key; raises ValueError for a field too many, which could be a restriction.

    So could a field that is missing, because without it a key may do more.
    """
    key = convert(entry, ApiKey)  # fails for a field that it does not know
    limits = entry.get("limits", ())
    if {*ApiKey.__struct_fields__} - {*entry} or len(limits) < len(KeyLimits.__struct_fields__):
        raise ValueError("a field is missing")
    return key


def format_keys(keys: Sequence[ApiKey]) -> str:
    """The text of a file with these keys."""
    file = {"version": VERSION, "keys": keys}
    return json.format(json.encode(file, order="deterministic")).decode() + "\n"


def parse_entries(texts: Iterable[str]) -> list[ApiKey]:
    """The keys of texts from `format_entry`; raises ValueError as `parse_keys`."""
    return [_parse_entry(json.decode(text, type=dict[str, Any])) for text in texts]


def format_entry(key: ApiKey) -> str:
    """One key as a text."""
    return json.encode(key, order="deterministic").decode()
