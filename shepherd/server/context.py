"""What the routes of one server share, handed to them when the app is made."""

from dataclasses import dataclass

from shepherd.backends.base import Backend
from shepherd.server.keys import KeyStore
from shepherd.server.settings import ServerSettings
from shepherd.tools.runner import ToolRunner


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts that requests are served with; `started` is a Unix time.

    `tools` is None unless the tool endpoints are switched on; its approver must never ask.
    """

    backend: Backend
    settings: ServerSettings
    started: int
    keys: KeyStore | None = None
    tools: ToolRunner | None = None
