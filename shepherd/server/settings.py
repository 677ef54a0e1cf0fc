"""The settings of a server, and the parts that its routes share."""

from dataclasses import dataclass
from pathlib import Path

from shepherd.backends.base import Backend
from shepherd.plugins import Plugins
from shepherd.server.access.meter import Meter
from shepherd.server.agent.agent import Agent
from shepherd.server.body import BodyReader
from shepherd.server.models import Models
from shepherd.server.operation.lifecycle import Lifecycle
from shepherd.server.operation.monitor import Monitor
from shepherd.server.seal import Seal
from shepherd.server.transport.tls import TlsFiles
from shepherd.storage.postgres import PostgresServer


@dataclass(slots=True)
class ServerSettings:
    """The server's address and limits; the key store decides who may connect.

    A reload changes those that are read for each request or connection.

    `thinking` and `max_tokens` are the defaults for requests without a reasoning mode or a limit of
    generated tokens (0: as many tokens as fit). `cors_origins` are the origins of web pages that
    may call the server. `keepalive` is the silence in seconds after which a stream sends a comment.
    `insecure` allows listening beyond loopback without authentication. `max_choices` is the maximum
    of answers (`n`) to a request. `read_timeout` is the time in seconds for sending a request's
    headers; a body gets more by its size. `write_timeout` is the time for reading sent data.
    Connections are limited in total, 0 for no limit. A request has at most `max_headers` headers,
    which take at most `max_header_bytes` with its first line. A connection may be idle for
    `idle_timeout` seconds after a request. `plugins` may add routes; None leaves
    them out.
    The server listens on `host` and `port` unless `tcp` is false, there with encryption if it has
    `tls`, and on the Unix socket of the path `socket`. `metrics_open` answers `/metrics` without a
    key. `json_log` writes the log as JSON.
    Running requests get `shutdown_seconds` when the server ends, 0 for no limit.
    `signing_key` is the file of the key that signs data for clients to send back (see `Seal`).
    `usage_file` holds what keys used, for `usage_days`. With a `limits_file`, limits hold for all
    servers of this user that have it.
    `responses_file` holds the responses of the Responses API. They are kept for
    `store_responses_days` after their last use, 0 for not at all, and take at most
    `store_responses_mib`.
    With a `database`, usage, the limits of keys and responses are there, and not in the files.
    `audit_file` gets a line for each tool that ran; a full one of `audit_mib` is renamed. With
    `audit_required` a tool does not run without its line.
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
    max_header_bytes: int = 16 * 1024
    max_headers: int = 128
    idle_timeout: float = 65.0
    tcp: bool = True
    tls: TlsFiles | None = None
    metrics_open: bool = False
    shutdown_seconds: float = 60.0
    json_log: bool = False
    socket: Path | None = None
    plugins: Plugins | None = None
    signing_key: Path | None = None
    responses_file: Path | None = None
    usage_file: Path | None = None
    limits_file: Path | None = None
    usage_days: int = 400
    store_responses_days: int = 30
    store_responses_mib: int = 1024
    database: PostgresServer | None = None
    audit_file: Path | None = None
    audit_mib: int = 16
    audit_required: bool = False


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts that requests are served with; `started` is a Unix time.

    All routes read bodies through `bodies`, and sign with `seal`. With an `agent`, answers are
    whole turns with the server's tools. `monitor` measures the work of models. `meter` counts what
    keys use, if keys are needed. `lifecycle` is the state of the server.
    """

    models: Models
    settings: ServerSettings
    bodies: BodyReader
    started: int
    seal: Seal
    monitor: Monitor
    lifecycle: Lifecycle
    agent: Agent | None = None
    meter: Meter | None = None

    @property
    def backend(self) -> Backend:
        """The default model's; a shared session opens another one after a failure."""
        return self.models.default
