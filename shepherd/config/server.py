"""The `[server]` section."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field, ValidationError, WrapValidator

from shepherd import durations, validation
from shepherd.config.section import LIVE, AuthMode, LogFormat, Section, SharedPrefix, ShowToolCalls

PASSWORD_PLACE = r"(|file|keyring|env:[A-Za-z_][A-Za-z0-9_]*)"
MAX_TARGETS = 20
_TARGETS = Field(min_length=1, max_length=MAX_TARGETS)

ModelName: TypeAlias = Annotated[str, Field(max_length=200, pattern=r"\S")]
AliasTargets: TypeAlias = (
    ModelName
    | Annotated[list[ModelName], _TARGETS]
    | Annotated[dict[ModelName, Annotated[float, Field(gt=0)]], _TARGETS]
)
"""One model, models in the order in which they are tried, or models with weights."""


def _check_aliases(aliases: object, check: Callable[[object], object]) -> object:
    """The checked aliases; raises ValueError, in fewer words than pydantic has for a union."""
    try:
        return check(aliases)
    except ValidationError as error:
        place = error.errors()[0]["loc"]
        if not place:  # it is no table
            raise
        raise ValueError(
            f"{json.dumps(place[0])} must be a model, a list of up to {MAX_TARGETS} models, or a "
            "table of models with weights above 0"
        ) from error


def _check_database(url: str) -> str:
    """The URL of a database, "" for none; raises ValueError for one with a password."""
    if url:
        validation.check_database_url(url)
    return url


def _check_place(place: str) -> str:
    """The place of a password; the error does not quote it, because it may be a password."""
    if not re.fullmatch(PASSWORD_PLACE, place):
        raise ValueError("must be the place of the password: env:NAME, file or keyring")
    return place


def _check_duration(text: str) -> str:
    """The text, which stays as it was written; raises ValueError if it is no duration."""
    if text:
        durations.parse_duration(text)
    return text


class DoorSettings(Section):
    """Where the server listens, and the limits of connections."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on."""

    port: int = Field(default=8000, ge=0, le=65_535)
    """Port; 0 = any free one."""

    socket: str = ""
    """Path of a Unix socket to listen on (also `--socket`); without a `host` or `port` in the
    settings only there; "" = none."""

    tls_cert: Annotated[str, LIVE] = ""
    """PEM file of the certificate and those that certify it (also `--tls-cert`); "" = no
    encryption."""

    tls_key: Annotated[str, LIVE] = ""
    """PEM file of its private key (also `--tls-key`); "" = the key is in the file of the
    certificate."""

    tls_password_file: Annotated[str, LIVE] = ""
    """File with the password of the key (also `--tls-password-file`); "" = none."""

    read_timeout: Annotated[float, LIVE] = Field(default=30.0, ge=1, le=3600)
    """Seconds for a request's headers; a body gets one more second per 16 KiB."""

    write_timeout: Annotated[float, LIVE] = Field(default=60.0, ge=1, le=3600)
    """Seconds that a client may leave an answer unread."""

    idle_timeout: Annotated[float, LIVE] = Field(default=65.0, ge=1, le=3600)
    """Seconds that a connection may be idle between requests."""

    max_header_bytes: Annotated[int, LIVE] = Field(default=16_384, ge=1024, le=1_048_576)
    """Maximum bytes of a request's first line and its headers."""

    max_headers: Annotated[int, LIVE] = Field(default=128, ge=8, le=10_000)
    """Maximum headers of a request."""

    max_connections: Annotated[int, LIVE] = Field(default=512, ge=0, le=100_000)
    """Maximum open connections; 0 = no limit."""


class ServerSection(DoorSettings):
    """The HTTP server."""

    auth_mode: AuthMode = Field(default=AuthMode.NONE, strict=False)
    """`none`, or `json`: keys made by `shepherd apikey add`."""

    tools: bool = False
    """Serve the built-in tools at /v1/tools (also `--server-tools`)."""

    use_tools: bool = False
    """Answer as an agent: the server runs its own tools for a request (also `--use-tools`)."""

    tool_rounds: int = Field(default=25, ge=1, le=1000)
    """Maximum generations of one answer with `use_tools` (also `--tool-rounds`)."""

    show_tool_calls: ShowToolCalls = Field(default=ShowToolCalls.REASONING, strict=False)
    """Where an answer tells which tools ran: `off`, `reasoning` or `content`."""

    approval_seconds: float = Field(default=300.0, ge=0, le=86_400)
    """Seconds for which a tool call with `use_tools` waits for a client whose key may approve it; 0
    = it is denied at once."""

    audit_mib: int = Field(default=16, ge=1, le=1_048_576)
    """MiB of the file that lists the tools that ran; three older files are kept."""

    audit_required: bool = False
    """Run no tool for a client if the list of these calls can't be written."""

    database: Annotated[str, AfterValidator(_check_database)] = ""
    """URL of a PostgreSQL database for keys, limits, usage, stored responses and shared sessions,
    without a password: `postgresql://USER@HOST/NAME` (needs psycopg); "" = files."""

    database_password: Annotated[str, AfterValidator(_check_place)] = ""
    """The place of its password: `env:NAME`, `file` or `keyring` (`shepherd database password`); ""
    = none, or where libpq finds it (`PGPASSWORD`, `~/.pgpass`)."""

    keys_grace: float = Field(default=600.0, ge=0, le=86_400)
    """Seconds for which known keys stay valid while the database does not answer; a key that is
    removed in that time still works until then."""

    max_body_bytes: int = Field(default=16_777_216, ge=1024, le=1_073_741_824)
    """Maximum request body in bytes."""

    max_choices: Annotated[int, LIVE] = Field(default=8, ge=1, le=128)
    """Maximum answers to one request (`n`)."""

    keepalive: float = Field(default=15.0, ge=1, le=3600)
    """Seconds of silence before a stream's comment."""

    log_format: LogFormat = Field(default=LogFormat.TEXT, strict=False)
    """Lines of the log: `text`, or `json`, one object per line (also `--log-format`)."""

    shutdown_seconds: Annotated[float, LIVE] = Field(default=60.0, ge=0, le=86_400)
    """Seconds for running requests when the server ends; 0 = no limit."""

    metrics_open: Annotated[bool, LIVE] = False
    """Answer `/metrics` without a key; else it needs the scope admin."""

    shared_prefix: Annotated[SharedPrefix, LIVE] = Field(default=SharedPrefix.PROMPT, strict=False)
    """What keys share of the texts that are in a model's memory: `prompt`, a system message with
    tools that both have sent whole, or `key`, nothing."""

    usage_days: int = Field(default=400, ge=1, le=36_500)
    """Days for which the usage of keys is kept."""

    store_responses_days: int = Field(default=30, ge=0, le=36_500)
    """Days after their last use that responses of the Responses API are kept; 0 = none are
    stored."""

    store_responses_mib: int = Field(default=1024, ge=1, le=16_777_216)
    """MiB of stored responses; those used least recently are deleted first."""

    cors_origins: list[str] = []
    """Origins of web pages that may call the server; `*`: all, `localhost`: pages of this machine,
    on any port."""

    aliases: Annotated[dict[ModelName, AliasTargets], WrapValidator(_check_aliases), LIVE] = {}
    """Other names for models: a model, a list of models of which the next one answers if one fails,
    or a table of models with weights. A name with `*`, as `"claude-*"`, stands for all names that
    fit it and that no model has."""

    any_model: Annotated[bool, LIVE] = False
    """Answer requests for an unknown model with the default one; else 404."""

    keep_alive: Annotated[str, AfterValidator(_check_duration), LIVE] = ""
    """How long a model stays in memory without requests: `90s`, `5m`, `1h`; 0 = not at all, -1 =
    until its memory is needed. If empty, the default model stays, and the others for 5 minutes."""

    max_models: Annotated[int, LIVE] = Field(default=0, ge=0, le=1000)
    """Maximum models in memory; 0 = as many as fit."""

    pull: Annotated[bool, LIVE] = False
    """Let clients download models from Hugging Face (`POST /api/pull`) where no keys are needed;
    with keys, those with the scope admin may."""

    memory_mib: int = Field(default=0, ge=0, le=16_777_216)
    """MiB of memory for all models together, their prompt caches included; 0 = all that is free
    when the server starts."""

    def url(self, port: int, *, encrypted: bool) -> str:
        """The URL of the server on a port, without a path; an IPv6 address is in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if encrypted else 'http'}://{host}:{port}"
