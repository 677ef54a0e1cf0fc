"""`shepherd mcp serve`: Shepherd as an MCP server."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, cast

import typer

from shepherd.errors import UsageError


def serve(
    context: typer.Context,
    *,
    tools: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Only these tools, with commas between them; `ask` is the model.",
        ),
    ] = None,
) -> None:
    """Serve Shepherd's tools, and `ask` for its model, to another agent on stdin and stdout.

    Rules, sandbox and settings are those of the directory. Calls that need approval are shown to
    the other agent's user, or denied if it can't show them.
    """
    from shepherd.cli.launch import ended_by_signals
    from shepherd.cli.mcpserver.server import McpService, serve_stdio  # imports the SDK
    from shepherd.cli.request import load_settings
    from shepherd.config.settings import Config
    from shepherd.conversation.model_choice import model_of_flags

    overrides = cast(Mapping[str, object], context.obj)

    def read(directory: Path) -> Config:
        return model_of_flags(load_settings(directory, os.environ, overrides))

    service = McpService(read, Path.cwd().resolve(), _names(tools))
    raise typer.Exit(asyncio.run(ended_by_signals(serve_stdio(service))))


def _names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError("--tools is empty; write names with commas between them.")
    return names
