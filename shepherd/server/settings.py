"""The settings of a server, and the parts that its routes share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shepherd.backends.base import Backend
from shepherd.plugins import Plugins
from shepherd.server.body import BodyReader
from shepherd.server.models import Models
from shepherd.server.seal import Seal


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server's address and limits; the key store decides who may connect.

    `thinking` and `max_tokens` are for requests that don't say whether the model is to reason and
    how much it may generate (0: as many tokens as fit).
    `cors_origins` are the origins of web pages that may call the server. `keepalive` is the
    silence in seconds after which a stream sends a comment. `insecure` insists on listening
    beyond loopback without authentication. `max_choices` is how many answers (`n`) a request gets.
    `read_timeout` and `write_timeout` are how many seconds a client may take to send a request's
    headers, and to read what was sent to it; a body gets more by its size. Connections are limited
    in all and per address, 0 for no limit. `plugins` may add routes; None leaves them out.
    `signing_key` is the file of the key that signs what clients send back (see `Seal`).
    """

    host: str = "127.0.0.1"
    port: int = 8000
    insecure: bool = False
    thinking: bool = False
    max_tokens: int = 0
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 16 * 1024 * 1024
    keepalive: float = 15.0
    max_choices: int = 8
    read_timeout: float = 30.0
    write_timeout: float = 60.0
    max_connections: int = 512
    max_connections_per_address: int = 64
    plugins: Plugins | None = None
    signing_key: Path | None = None


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts that requests are served with; `started` is a Unix time.

    All routes read bodies through `bodies`, and sign with `seal`.
    """

    current_backend: Callable[[], Backend]
    models: Models
    settings: ServerSettings
    bodies: BodyReader
    started: int
    seal: Seal

    @property
    def backend(self) -> Backend:
        """The default model's; a shared session opens another one after a failure."""
        return self.current_backend()
