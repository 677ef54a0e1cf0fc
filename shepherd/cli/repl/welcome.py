"""What a newcomer reads: two lines below the greeting, and models that could be used."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from shepherd.catalog.discovery import Discovery, discover
from shepherd.config.choices import ApproveMode
from shepherd.config.files import make_private_directory
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config, LayerName
from shepherd.conversation.commands.present import MODE_TEXT
from shepherd.models import BUILTIN_NAME

MAX_FILE_BYTES = 65_536


def is_newcomer(sessions: Path) -> bool:
    """Whether no session was saved yet."""
    return next(sessions.glob("*.jsonl"), None) is None


def welcome(model: str, mode: ApproveMode) -> tuple[str, str]:
    """The model and its limits, and how to begin."""
    if model == BUILTIN_NAME:
        first = "You talk to Pup, a small built-in model for short tasks. /model has others."
    else:
        first = f"You talk to {model}. The last line shows how full its context is."
    promise = "You are asked before anything is changed or run."
    rule = promise if mode is ApproveMode.ASK else MODE_TEXT[mode]
    return first, f"@ adds a file, Esc stops. {rule}"


def _is_unset(config: Config, providers: ProviderBook) -> bool:
    """Whether the user has neither chosen a model nor added a provider."""
    chosen = config.model.provider or config.source("model.name").layer is not LayerName.DEFAULT
    return not chosen and not providers.all()


async def suggestions(
    config: Config, providers: ProviderBook, env: Mapping[str, str], suggestions_file: Path
) -> list[str]:
    """A line for each possible model, for users without a choice so far.

    Each is suggested once: `suggestions_file` keeps them. Raises ConfigError for a broken
    providers.toml.
    """
    if not _is_unset(config, providers):
        return []
    available = await discover(env, _models_dir(config))
    new = await asyncio.to_thread(_new_suggestions, available, suggestions_file)
    if not new:
        return []
    return [
        "Pup, a small model, answers until you connect another one. On this machine:",
        *(f"  {item.description}: {item.command}" for item in new),
    ]


def _models_dir(config: Config) -> Path:
    return Path(config.llamacpp.models_dir).expanduser()


def _new_suggestions(available: list[Discovery], suggestions_file: Path) -> list[Discovery]:
    """The suggestions that are not in the file yet, and saves them; [] if they can't be saved."""
    try:
        make_private_directory(suggestions_file.parent)
        with open(suggestions_file, "a+", encoding="utf-8", opener=_private) as file:
            file.seek(0)
            known = file.read(MAX_FILE_BYTES).splitlines()
            new = [item for item in available if item.command not in known]
            file.writelines(f"{item.command}\n" for item in new)
    except (OSError, UnicodeError):
        return []
    return new


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
