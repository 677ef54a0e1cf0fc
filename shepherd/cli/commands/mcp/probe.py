"""Starts one server and lists what it offers."""

import os
from collections.abc import Callable
from pathlib import Path

from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.toolbox import build_policy, build_sandbox
from shepherd.mcp.hub import find_server, hub_of
from shepherd.mcp.prompts import offer_lines
from shepherd.mcp.settings.definition import ServerState


async def probe(config: Config, cwd: Path, name: str, show: Callable[[str], None]) -> int:
    """Show a server's offer, or why it can't be used; returns the exit code."""
    paths = Paths.from_env(os.environ)
    server = find_server(paths, cwd, name)
    policy, sandbox = build_policy(config, paths, cwd), build_sandbox(config)
    hub = hub_of([server], paths, policy, sandbox, show)
    hub.begin()
    try:
        await hub.settled(server.definition.start_timeout + 5)
        [entry] = hub.entries
        for line in offer_lines(entry):
            show(line)
        return 0 if entry.current is ServerState.READY else 1
    finally:
        await hub.aclose()
