"""The command line as data, and the settings that it results in."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

from shepherd.cli.commands.output import warn
from shepherd.config.layers import flag_layer
from shepherd.config.load import load_config
from shepherd.config.settings import Config
from shepherd.conversation.session_start import SessionStart
from shepherd.errors import ConfigError, UsageError

if TYPE_CHECKING:
    import typer

    from shepherd.config.provider_book import Ephemeral

PROVIDER = "shepherd.provider"
"""The name in the context's `meta` of the provider that only this run knows."""


class FrontendChoice(Struct, frozen=True):
    """The frontend to start and its options; `overrides` are settings by `section.key`.

    `provider` is one that only this run knows. `connect` is the URL of a shared conversation,
    `api_key` its key. `images` go with the prompt. `apply` makes the changes of a review.
    `fit` only shows how the model would be loaded.
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
    apply: bool = False
    fit: bool = False


def check_overrides(overrides: Mapping[str, object]) -> None:
    """Raise UsageError for a wrong value of an option."""
    try:
        flag_layer(overrides)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def load_settings(cwd: Path, env: Mapping[str, str], overrides: Mapping[str, object]) -> Config:
    """The settings that apply in `cwd`.

    Raises ConfigError, or a UsageError if only the `overrides` are wrong.
    """
    try:
        return load_config(cwd, env, overrides)
    except ConfigError as error:
        if overrides:
            load_config(cwd, env)  # raises ConfigError if it fails without them too
            raise UsageError(str(error)) from error
        raise


def overrides_of(context: "typer.Context") -> Mapping[str, object]:
    """The settings of the options that stand before a command."""
    return cast(Mapping[str, object], context.obj or {})


def loaded_config(context: "typer.Context") -> Config:
    """The settings that apply to a command; its warnings go to stderr."""
    loaded = load_settings(Path.cwd(), os.environ, overrides_of(context))
    for warning in loaded.warnings:
        warn(warning)
    return loaded
