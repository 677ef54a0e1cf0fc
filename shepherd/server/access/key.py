"""An API key: what it may do, until when, and how much."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase

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
