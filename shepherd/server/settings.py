"""The settings of a server, and the parts that its routes share."""

from pathlib import Path

from msgspec import Struct, field
from pydantic import ConfigDict

from shepherd.backends.base import Backend
from shepherd.config.section import LogFormat
from shepherd.config.server import ServerSection
from shepherd.plugins import Plugins
from shepherd.server.access.meter import Meter
from shepherd.server.agent.agent import Agent
from shepherd.server.body import BodyReader
from shepherd.server.models import Models
from shepherd.server.operation.lifecycle import Lifecycle
from shepherd.server.operation.monitor import Monitor
from shepherd.server.pool.downloads import Downloads
from shepherd.server.seal import Seal
from shepherd.server.transport.tls import TlsFiles
from shepherd.server.wire.slots import Slots
from shepherd.storage.postgres import PostgresServer


class ServerSettings(ServerSection):
    """The `[server]` section, and what it does not say; the key store decides who may connect.

    A reload changes the settings that are `LIVE`.

    `insecure` allows listening beyond loopback without authentication. `thinking` and `max_tokens`
    are the defaults for requests without a reasoning mode or a limit of generated tokens (0: as
    many tokens as fit). `plugins` may add routes; None leaves them out.
    The server listens on `host` and `port` unless `tcp` is false, there with encryption if it has
    `tls`.
    `signing_key` is the file of the key that signs data for clients to send back (see `Seal`).
    `usage_file` holds what keys used; their limits are in a file beside it, and hold for all
    servers of this user. `responses_file` holds the responses of the Responses API.
    With `postgres`, usage, the limits of keys and responses are there, and not in the
    files. `audit_file` gets a line for each tool that ran. In `slots_folder` is what clients save
    of slots. Models that clients download go into `models_dir`; None: they can't.
    """

    model_config = ConfigDict(frozen=False, arbitrary_types_allowed=True)

    insecure: bool = False
    thinking: bool = False
    max_tokens: int = 0
    tcp: bool = True
    tls: TlsFiles | None = None
    plugins: Plugins | None = None
    signing_key: Path | None = None
    responses_file: Path | None = None
    usage_file: Path | None = None
    audit_file: Path | None = None
    slots_folder: Path | None = None
    models_dir: Path | None = None
    postgres: PostgresServer | None = None

    @property
    def json_log(self) -> bool:
        """Whether the log is JSON."""
        return self.log_format is LogFormat.JSON

    @property
    def socket_path(self) -> Path | None:
        """The place of the Unix socket to listen on, None for none."""
        return Path(self.socket).expanduser().absolute() if self.socket else None


class ServerContext(Struct, frozen=True):
    """The parts that requests are served with; `started` is a Unix time.

    All routes read bodies through `bodies`, and sign with `seal`. With an `agent`, answers are
    whole turns with the server's tools. `monitor` measures the work of models. `meter` counts what
    keys use. `lifecycle` is the state of the server, `slots` what clients may save. `downloads` are
    those of models.
    """

    models: Models
    settings: ServerSettings
    bodies: BodyReader
    started: int
    seal: Seal
    monitor: Monitor
    lifecycle: Lifecycle
    agent: Agent | None = None
    meter: Meter = field(default_factory=Meter)
    slots: Slots = field(default_factory=Slots)
    downloads: Downloads = field(default_factory=Downloads)

    @property
    def backend(self) -> Backend:
        """The default model's; a shared session opens another one after a failure."""
        return self.models.default
