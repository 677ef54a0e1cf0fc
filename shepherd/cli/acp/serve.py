"""Serves one editor until it closes stdin."""

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from acp import run_agent
from acp.interfaces import Agent

from shepherd.cli.acp.agent import EditorAgent
from shepherd.cli.acp.opening import SharedModels
from shepherd.cli.acp.transport import LineTransport
from shepherd.cli.terminal.lines import read_lines, take_streams
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config

TERMINAL = "shepherd: this speaks with an editor, which starts it by itself (Ctrl+D ends it)\n"


async def serve_editor(
    config: Config, settings: Callable[[Path], Config], providers: ProviderBook
) -> int:
    """Answer requests on stdin until it ends; returns the exit code.

    `settings` reads the settings that apply in a session's directory.
    """
    if sys.stdin.isatty():
        sys.stderr.write(TERMINAL)
    source, target = take_streams()
    _log_in_lines()
    transport = LineTransport(read_lines(source), target)
    agent = EditorAgent(config, settings, SharedModels(providers), transport.post)
    try:
        await run_agent(cast(Agent, agent), transport, use_unstable_protocol=True)
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the package swallows it
            raise asyncio.CancelledError
    finally:
        await agent.aclose()
        await transport.finish()
    return 0


class _LineHandler(logging.Handler):
    """Writes a record as one line on stderr, without its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        reason = f": {error}" if error is not None else ""
        text = " ".join(sanitize(f"{record.getMessage()}{reason}").split())
        sys.stderr.write(f"shepherd: {text}\n")
        sys.stderr.flush()


def _log_in_lines() -> None:
    """Editors show stderr to the user, and the package logs what it answers with an error."""
    logging.basicConfig(handlers=[_LineHandler()], level=logging.WARNING)
