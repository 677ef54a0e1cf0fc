"""The `[server]` section."""

from typing import Annotated

from pydantic import Field

from shepherd.config.choices import AuthMode, ShowToolCalls
from shepherd.config.sections import Section


class ServerSection(Section):
    """The HTTP server."""

    host: Annotated[str, Field(min_length=1, description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535, description="Port; 0 = any free one.")] = 8000
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
    max_body_bytes: Annotated[
        int, Field(ge=1024, le=1_073_741_824, description="Maximum request body in bytes.")
    ] = 16_777_216
    max_choices: Annotated[
        int, Field(ge=1, le=128, description="Maximum answers to one request (`n`).")
    ] = 8
    keepalive: Annotated[
        float, Field(ge=1, le=3600, description="Seconds of silence before a stream's comment.")
    ] = 15.0
    read_timeout: Annotated[
        float,
        Field(
            ge=1,
            le=3600,
            description="Seconds for a request's headers; a body gets one more second per 16 KiB.",
        ),
    ] = 30.0
    write_timeout: Annotated[
        float,
        Field(ge=1, le=3600, description="Seconds that a client may leave an answer unread."),
    ] = 60.0
    max_connections: Annotated[
        int, Field(ge=0, le=100_000, description="Maximum open connections; 0 = no limit.")
    ] = 512
    max_connections_per_address: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="Maximum open connections from one address; 0 = no limit, for a proxy "
            "on another machine. Addresses of this machine are not limited.",
        ),
    ] = 64
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
        list[str], Field(description="Origins of web pages that may call the server.")
    ] = Field(default=[])
