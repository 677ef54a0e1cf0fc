"""What the routes of one server share, handed to them when the app is made."""

from dataclasses import dataclass

from shepherd.backends.base import Backend
from shepherd.server.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts that requests are served with; `started` is a Unix time."""

    backend: Backend
    settings: ServerSettings
    started: int
