"""The cache's tiers behind memory, as the settings want them."""

import logging
import shutil
from pathlib import Path
from typing import Any

from shepherd.backends.llamacpp.cache.disk_cache import DiskCache
from shepherd.backends.llamacpp.cache.fingerprint import fingerprint
from shepherd.backends.llamacpp.cache.state_folder import StateFolder
from shepherd.backends.llamacpp.native.adapters import wanted_adapters
from shepherd.config.sections import LlamaCppSection

logger = logging.getLogger(__name__)

DISK_SHARE = 10
MOST_ON_DISK = 8 * 1024**3
"""By itself the cache takes a tenth of the free disk, at most 8 GiB."""

_MIB = 1024 * 1024


def disk_capacity(settings: LlamaCppSection, folder: Path) -> int:
    """The bytes that all saved conversations may take; raises OSError."""
    if settings.cache_disk_mib >= 0:
        return settings.cache_disk_mib * _MIB
    there = next(path for path in (folder, *folder.parents) if path.exists())
    ours = sum(file.bytes for file in StateFolder(folder, 0).files())
    return min(MOST_ON_DISK, (shutil.disk_usage(there).free + ours) // DISK_SHARE)


def open_disk_cache(
    folder: Path | None, settings: LlamaCppSection, model: Path, params: Any
) -> DiskCache | None:
    """The third tier for a model that is loaded with these parameters; None without one.

    A folder that can't be used is said in the log only.
    """
    if folder is None or settings.cache_disk_mib == 0:
        return None
    try:
        states = StateFolder(folder, disk_capacity(settings, folder))
        adapters = [adapter.identity for adapter in wanted_adapters(settings)]
        return DiskCache(states, fingerprint(model, params, adapters))
    except OSError as error:
        logger.warning("Conversations are not saved in %s: %s", folder, error)
        return None
