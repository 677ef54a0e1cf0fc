"""What the routes of one server share, handed to them when the app is made."""

from dataclasses import dataclass
from typing import Protocol

from shepherd.backends.base import Backend
from shepherd.server.settings import ServerSettings
from shepherd.tools.runner import ToolRunner


class KeyChecker(Protocol):
    """Knows the API keys."""

    def verify(self, key: str) -> str | None:
        """The name of the key, None if it is not one; raises ConfigError if that can't be told."""
        ...


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts that requests are served with; `started` is a Unix time.

    `tools` is None unless the tool endpoints are switched on; its approver must never ask.
    """

    backend: Backend
    settings: ServerSettings
    started: int
    keys: KeyChecker | None = None
    tools: ToolRunner | None = None
