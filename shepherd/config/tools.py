"""The sections `[permissions]`, `[tools]` and `[plugins]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shepherd.config.choices import ApproveMode, SandboxMode
from shepherd.config.section import Section


def _check_paths(paths: list[str]) -> list[str]:
    for path in paths:
        if not path.startswith(("/", "~/")):
            raise ValueError(f"must begin with / or ~/, got {path!r}")
        if not path.strip("/~"):
            raise ValueError(f"must not be the whole of {path!r}")
    return paths


class PermissionRule(Section):
    """One rule: calls of `tool` that touch what `pattern` matches get `decision`."""

    tool: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9_*?]+$",
            description="Tool, glob of tools, or read, write, shell, shell_network, unsandboxed, "
            "network, environment, mcp, tool.",
        ),
    ]
    pattern: Annotated[
        str,
        Field(
            min_length=1,
            description="Path, command, host, variable or `SERVER/TOOL`, with * and **.",
        ),
    ]
    decision: Annotated[
        Literal["allow", "ask", "deny"], Field(description="The decision on such a call.")
    ]
    scope: Annotated[
        str, Field(description='Directory in and below which the rule holds; "" = everywhere.')
    ] = ""


class PermissionsSection(Section):
    """The tool calls that need no approval."""

    approve: Annotated[
        ApproveMode,
        Field(
            strict=False,
            description="Calls that need approval: `ask` asks, `edits` approves changes to files "
            "in the working directory, `auto` also commands in the sandbox, `all` approves "
            "everything, `none` refuses. `plan` changes nothing.",
        ),
    ] = ApproveMode.ASK
    rules: Annotated[
        list[PermissionRule],
        Field(
            description="Rules after the built-in ones; the last match wins. A project's rules "
            "count only if they are stricter.",
        ),
    ] = []


class ToolsSection(Section):
    """Limits of the built-in tools."""

    timeout: Annotated[
        float, Field(ge=1, le=86_400, description="Maximum seconds of one call.")
    ] = 120.0
    output_bytes: Annotated[
        int,
        Field(
            ge=1024,
            le=16_777_216,
            description="Maximum result in bytes; the rest goes to a file.",
        ),
    ] = 32_768
    allow_private_hosts: Annotated[
        bool, Field(description="Let the http tools reach loopback and private addresses.")
    ] = False
    sandbox: Annotated[
        SandboxMode,
        Field(
            strict=False,
            description="Commands run in the strongest sandbox that works here. If none works, "
            "`auto` runs them without one, and `required` refuses them; `off` uses none.",
        ),
    ] = SandboxMode.AUTO
    sandbox_writable: Annotated[
        list[str],
        Field(
            description="Paths outside the working directory that commands in the sandbox may "
            "also write, such as `~/.cache/pip`.",
        ),
        AfterValidator(_check_paths),
    ] = []
    sandbox_readable: Annotated[
        list[str],
        Field(description="Paths that commands in the sandbox may also read."),
        AfterValidator(_check_paths),
    ] = []
    disabled: Annotated[list[str], Field(description="Names of tools that are not offered.")] = []
    schema_tokens: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000,
            description="Maximum tokens of added tools (MCP, plugins) in the prompt. If they take "
            "more, the model searches them with `find_tools`.",
        ),
    ] = 500
    ask_providers: Annotated[
        bool,
        Field(
            description="Offer the model `ask_NAME` for each other provider, unless that one's "
            "`ask` is false."
        ),
    ] = True
    tasks: Annotated[
        int,
        Field(
            ge=0,
            le=16,
            description="Sub-agents that work at the same time; 0 = the model has no `task` tool.",
        ),
    ] = 4


class PluginsSection(Section):
    """The plugins of installed packages."""

    disabled: Annotated[
        list[str],
        Field(
            description="Packages, or entry points by name, that are not loaded.",
        ),
    ] = []
