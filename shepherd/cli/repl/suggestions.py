"""What to suggest to those who have connected nothing yet."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from shepherd.catalog.discovery import Found, discover
from shepherd.config.files import make_private_directory
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config, LayerName

LARGEST = 65_536


def _is_unset(config: Config, providers: ProviderBook) -> bool:
    """Whether nobody has chosen a model or added a provider."""
    chosen = config.model.provider or config.source("model.name").layer is not LayerName.DEFAULT
    return not chosen and not providers.all()


async def suggestions(
    config: Config, providers: ProviderBook, env: Mapping[str, str], told_file: Path
) -> list[str]:
    """A line for each thing that could answer, for those who have chosen nothing yet.

    Each is told once: `told_file` keeps what was. Raises ConfigError for a broken providers.toml.
    """
    if not _is_unset(config, providers):
        return []
    found = await discover(env, _models_dir(config))
    new = await asyncio.to_thread(_untold, found, told_file)
    if not new:
        return []
    return [
        "Pup, a small model, answers until you connect another one. Found here:",
        *(f"  {item.what}: {item.command}" for item in new),
    ]


def _models_dir(config: Config) -> Path:
    return Path(config.llamacpp.models_dir).expanduser()


def _untold(found: list[Found], told_file: Path) -> list[Found]:
    """What is not in the file yet, which it is afterwards; nothing where it can't be kept."""
    try:
        make_private_directory(told_file.parent)
        with open(told_file, "a+", encoding="utf-8", opener=_private) as file:
            file.seek(0)
            told = file.read(LARGEST).splitlines()
            new = [item for item in found if item.command not in told]
            file.writelines(f"{item.command}\n" for item in new)
    except (OSError, UnicodeError):
        return []
    return new


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
