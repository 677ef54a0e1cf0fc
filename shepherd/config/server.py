"""The `[server]` section."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, TypeAlias, cast

from pydantic import AfterValidator, BeforeValidator, Field

from shepherd.config.choices import AuthMode, LogFormat, ShowToolCalls
from shepherd.config.section import LIVE, Section
from shepherd.durations import parse_duration
from shepherd.validation import check_database_url

AliasTargets: TypeAlias = str | list[str] | dict[str, float]
"""One model, models in the order in which they are tried, or models with weights."""

PASSWORD_PLACE = r"(|file|keyring|env:[A-Za-z_][A-Za-z0-9_]*)"
MAX_TARGETS = 20
_MAX_NAME = 200


def _check_aliases(aliases: object) -> object:
    if not isinstance(aliases, dict):
        return aliases
    table = cast(dict[object, object], aliases)
    for name, targets in table.items():
        if not (_is_name(name) and _are_targets(targets)):
            raise ValueError(
                f"{json.dumps(name, default=str)} must be a model, a list of up to "
                f"{MAX_TARGETS} models, or a table of models with weights above 0"
            )
    return table


def _check_database(url: str) -> str:
    if url:
        check_database_url(url)
    return url


def _check_place(place: str) -> str:
    if not re.fullmatch(PASSWORD_PLACE, place):
        raise ValueError("must be the place of the password: env:NAME, file or keyring")
    return place


def _check_duration(text: str) -> str:
    parse_duration(text)
    return text


class DoorSettings(Section):
    """Where the server listens, and the limits of connections."""

    host: Annotated[str, Field(min_length=1, description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535, description="Port; 0 = any free one.")] = 8000
    socket: Annotated[
        str,
        Field(
            description="Path of a Unix socket to listen on (also `--socket`); without a `host` or "
            '`port` in the settings only there; "" = none.'
        ),
    ] = ""
    tls_cert: Annotated[
        str,
        Field(
            description="PEM file of the certificate and those that certify it (also "
            '`--tls-cert`); "" = no encryption.'
        ),
        LIVE,
    ] = ""
    tls_key: Annotated[
        str,
        Field(
            description="PEM file of its private key (also `--tls-key`); "
            '"" = the key is in the file of the certificate.'
        ),
        LIVE,
    ] = ""
    tls_password_file: Annotated[
        str,
        Field(
            description='File with the password of the key (also `--tls-password-file`); "" = none.'
        ),
        LIVE,
    ] = ""
    read_timeout: Annotated[
        float,
        Field(
            ge=1,
            le=3600,
            description="Seconds for a request's headers; a body gets one more second per 16 KiB.",
        ),
        LIVE,
    ] = 30.0
    write_timeout: Annotated[
        float,
        Field(ge=1, le=3600, description="Seconds that a client may leave an answer unread."),
        LIVE,
    ] = 60.0
    idle_timeout: Annotated[
        float,
        Field(ge=1, le=3600, description="Seconds that a connection may be idle between requests."),
        LIVE,
    ] = 65.0
    max_header_bytes: Annotated[
        int,
        Field(
            ge=1024,
            le=1_048_576,
            description="Maximum bytes of a request's first line and its headers.",
        ),
        LIVE,
    ] = 16_384
    max_headers: Annotated[
        int, Field(ge=8, le=10_000, description="Maximum headers of a request."), LIVE
    ] = 128
    max_connections: Annotated[
        int, Field(ge=0, le=100_000, description="Maximum open connections; 0 = no limit."), LIVE
    ] = 512


class ServerSection(DoorSettings):
    """The HTTP server."""

    auth_mode: Annotated[
        AuthMode,
        Field(strict=False, description="`none`, or `json`: keys made by `shepherd apikey add`."),
    ] = AuthMode.NONE
    tools: Annotated[
        bool, Field(description="Serve the built-in tools at /v1/tools (also `--server-tools`).")
    ] = False
    use_tools: Annotated[
        bool,
        Field(
            description="Answer as an agent: the server runs its own tools for a request (also "
            "`--use-tools`)."
        ),
    ] = False
    tool_rounds: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="Maximum generations of one answer with `use_tools` (also "
            "`--tool-rounds`).",
        ),
    ] = 25
    show_tool_calls: Annotated[
        ShowToolCalls,
        Field(
            strict=False,
            description="Where an answer tells which tools ran: `off`, `reasoning` or `content`.",
        ),
    ] = ShowToolCalls.REASONING
    approval_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            description="Seconds for which a tool call with `use_tools` waits for a client whose "
            "key may approve it; 0 = it is denied at once.",
        ),
    ] = 300.0
    audit_mib: Annotated[
        int,
        Field(
            ge=1,
            le=1_048_576,
            description="MiB of the file that lists the tools that ran; three older files are "
            "kept.",
        ),
    ] = 16
    audit_required: Annotated[
        bool,
        Field(description="Run no tool for a client if the list of these calls can't be written."),
    ] = False
    database: Annotated[
        str,
        Field(
            description="URL of a PostgreSQL database for keys, limits, usage, stored "
            "responses and shared sessions, without a password: `postgresql://USER@HOST/NAME` "
            '(`shepherd[postgres]`); "" = files.',
        ),
        AfterValidator(_check_database),
    ] = ""
    database_password: Annotated[
        str,
        Field(
            description="The place of its password: `env:NAME`, `file` or `keyring` (`shepherd "
            'database password`); "" = none, or where libpq finds it (`PGPASSWORD`, `~/.pgpass`).',
        ),
        AfterValidator(_check_place),
    ] = ""
    max_body_bytes: Annotated[
        int, Field(ge=1024, le=1_073_741_824, description="Maximum request body in bytes.")
    ] = 16_777_216
    max_choices: Annotated[
        int, Field(ge=1, le=128, description="Maximum answers to one request (`n`)."), LIVE
    ] = 8
    keepalive: Annotated[
        float, Field(ge=1, le=3600, description="Seconds of silence before a stream's comment.")
    ] = 15.0
    log_format: Annotated[
        LogFormat,
        Field(
            strict=False,
            description="Lines of the log: `text`, or `json`, one object per line (also "
            "`--log-format`).",
        ),
    ] = LogFormat.TEXT
    shutdown_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            description="Seconds for running requests when the server ends; 0 = no limit.",
        ),
        LIVE,
    ] = 60.0
    metrics_open: Annotated[
        bool,
        Field(description="Answer `/metrics` without a key; else it needs the scope admin."),
        LIVE,
    ] = False
    usage_days: Annotated[
        int, Field(ge=1, le=36_500, description="Days for which the usage of keys is kept.")
    ] = 400
    store_responses_days: Annotated[
        int,
        Field(
            ge=0,
            le=36_500,
            description="Days after their last use that responses of the Responses API are kept; "
            "0 = none are stored.",
        ),
    ] = 30
    store_responses_mib: Annotated[
        int,
        Field(
            ge=1,
            le=16_777_216,
            description="MiB of stored responses; those used least recently are deleted first.",
        ),
    ] = 1024
    cors_origins: Annotated[
        list[str],
        Field(
            description="Origins of web pages that may call the server; `*`: all, `localhost`: "
            "pages of this machine, on any port."
        ),
    ] = []
    aliases: Annotated[
        dict[str, AliasTargets],
        Field(
            description="Other names for models: a model, a list of models of which the next one "
            "answers if one fails, or a table of models with weights.",
        ),
        BeforeValidator(_check_aliases),
        LIVE,
    ] = {}
    any_model: Annotated[
        bool,
        Field(description="Answer requests for an unknown model with the default one; else 404."),
        LIVE,
    ] = False
    keep_alive: Annotated[
        str,
        Field(
            description="How long a model that was loaded for a request stays without requests: "
            "`90s`, `5m`, `1h`; 0 = not at all, -1 = until its memory is needed.",
        ),
        AfterValidator(_check_duration),
        LIVE,
    ] = "5m"
    max_models: Annotated[
        int, Field(ge=0, le=1000, description="Maximum models in memory; 0 = as many as fit."), LIVE
    ] = 0
    models_mib: Annotated[
        int,
        Field(
            ge=0,
            le=16_777_216,
            description="MiB of memory for models; 0 = all that is free when the server starts.",
        ),
    ] = 0


def _are_targets(value: object) -> bool:
    """Whether a value names models as `AliasTargets` does."""
    if isinstance(value, dict):
        weights = cast(dict[object, object], value)
        return _are_names([*weights]) and all(map(_is_weight, weights.values()))
    return _are_names(cast(list[object], value) if isinstance(value, list) else [value])


def _are_names(values: list[object]) -> bool:
    return 1 <= len(values) <= MAX_TARGETS and all(map(_is_name, values))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= _MAX_NAME


def _is_weight(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < math.inf
