"""The command line as data, and the settings that it results in."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from shepherd.cli.terminal.errors import UsageError
from shepherd.config.load import load_config
from shepherd.config.settings import Config
from shepherd.conversation.session_start import SessionStart
from shepherd.errors import ConfigError

if TYPE_CHECKING:
    import typer

    from shepherd.config.provider_book import Ephemeral


@dataclass(frozen=True, slots=True)
class Launch:
    """The frontend to start and its options; `overrides` are settings by `section.key`.

    `provider` is one that only this run knows. `connect` is the URL of a shared conversation,
    `api_key` its key. `images` go with the prompt.
    """

    overrides: Mapping[str, object] = field(default_factory=dict[str, object])
    prompt: str | None = None
    json_lines: bool = False
    start: SessionStart = field(default_factory=SessionStart)
    server: bool = False
    insecure: bool = False
    provider: "Ephemeral | None" = None
    cliserver: bool = False
    connect: str = ""
    api_key: str = ""
    images: Sequence[Path] = ()
    acp: bool = False


def load_settings(cwd: Path, env: Mapping[str, str], overrides: Mapping[str, object]) -> Config:
    """The settings that apply in `cwd`.

    Raises ConfigError, or a UsageError if only the `overrides` are wrong.
    """
    try:
        return load_config(cwd, env, overrides)
    except ConfigError as error:
        if overrides:
            load_config(cwd, env)
            raise UsageError(str(error)) from error
        raise


def loaded_config(context: "typer.Context") -> Config:
    """The settings that apply to a command; its warnings go to stderr."""
    overrides = cast(Mapping[str, object], context.obj or {})
    loaded = load_settings(Path.cwd(), os.environ, overrides)
    for warning in loaded.warnings:
        sys.stderr.write(f"shepherd: {warning}\n")
    return loaded
