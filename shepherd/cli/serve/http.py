"""Starts the HTTP server from the settings."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from shepherd.backends.base import Concurrency
from shepherd.cli.terminal.errors import UsageError
from shepherd.config.choices import AuthMode
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config, LayerName
from shepherd.conversation.build import backend_opener, unsaved
from shepherd.conversation.session_start import Notices
from shepherd.conversation.toolbox import build_workspace
from shepherd.plugins import Plugins
from shepherd.server.keys import KeyStore
from shepherd.server.listen import UnsafeAddressError
from shepherd.server.run import serve
from shepherd.server.settings import ServerSettings
from shepherd.tools.runner import ToolRunner

PARALLEL = Concurrency(4)
"""The number of parallel requests if the settings do not set it."""


async def serve_config(
    config: Config, cwd: Path, providers: ProviderBook, *, insecure: bool
) -> int:
    """Serve until a signal ends it; raises ConfigError and errors from loading the backend."""
    paths = Paths.from_env(os.environ)
    for warning in (*config.warnings, *providers.warnings()):
        warn(warning)

    open_backend = partial(backend_opener(providers, PARALLEL), config)
    keys = KeyStore(paths.keys_file) if config.server.auth_mode is AuthMode.JSON else None
    tools = _served_tools(config, paths, cwd) if config.server.tools else None
    settings = server_settings(config, insecure=insecure)
    settings = replace(
        settings, signing_key=paths.signing_key_file, responses_file=paths.responses_file
    )
    with refusal_of_flags(config):
        await serve(open_backend, settings, keys, tools)
    return 0


@contextmanager
def refusal_of_flags(config: Config) -> Generator[None]:
    """Turns a refused address into a UsageError if the command line has named it."""
    try:
        yield
    except UnsafeAddressError as error:
        if config.source("server.host").layer is LayerName.FLAG:
            raise UsageError(str(error)) from error
        raise


def server_settings(config: Config, *, insecure: bool) -> ServerSettings:
    """The `server` section as the server's own settings."""
    section = config.server
    return ServerSettings(
        host=section.host,
        port=section.port,
        insecure=insecure,
        thinking=config.model.thinking,
        max_tokens=config.model.max_tokens,
        cors_origins=tuple(section.cors_origins),
        max_body_bytes=section.max_body_bytes,
        max_choices=section.max_choices,
        keepalive=section.keepalive,
        read_timeout=section.read_timeout,
        write_timeout=section.write_timeout,
        max_connections=section.max_connections,
        max_connections_per_address=section.max_connections_per_address,
        store_responses_days=section.store_responses_days,
        store_responses_mib=section.store_responses_mib,
        plugins=Plugins(config.plugins.disabled),
    )


def warn(text: str) -> None:
    """Write a sentence for the user to stderr."""
    from shepherd.cli.terminal.sanitize import sanitize

    sys.stderr.write(f"shepherd: {sanitize(text)}\n")


def _served_tools(config: Config, paths: Paths, cwd: Path) -> ToolRunner:
    notices = Notices()
    notices.listen(warn)
    return build_workspace(unsaved(config), paths, cwd, notices).tool_runner(config)
