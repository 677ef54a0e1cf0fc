"""The sizes of the cache's tiers, as the settings and the machine allow."""

import logging
import shutil
from pathlib import Path
from typing import Any

from shepherd.backends.llamacpp.cache.disk_cache import DiskCache
from shepherd.backends.llamacpp.cache.disk_file import StateFolder
from shepherd.backends.llamacpp.cache.fingerprint import fingerprint
from shepherd.backends.llamacpp.native.devices import available_memory
from shepherd.backends.llamacpp.native.model import configured_adapters
from shepherd.config.llamacpp import LlamaCppSection

logger = logging.getLogger(__name__)

DISK_DIVISOR = 10
MAX_DISK_BYTES = 8 * 1024**3
"""By default the cache uses a tenth of the free disk, at most 8 GiB."""

_MIB = 1024 * 1024

MEMORY_DIVISOR = 8
MAX_MEMORY_BYTES = 4 * 1024**3
"""By default the cache uses an eighth of the free memory, at most 4 GiB."""


def disk_capacity(settings: LlamaCppSection, folder: Path) -> int:
    """The maximum size of all saved conversations in bytes; raises OSError."""
    if settings.cache_disk_mib >= 0:
        return settings.cache_disk_mib * _MIB
    there = next(path for path in (folder, *folder.parents) if path.exists())
    ours = sum(file.bytes for file in StateFolder(folder, 0).files())
    return min(MAX_DISK_BYTES, (shutil.disk_usage(there).free + ours) // DISK_DIVISOR)


def open_disk_cache(
    folder: Path | None, settings: LlamaCppSection, model: Path, params: Any
) -> DiskCache | None:
    """The disk tier for a model with these context parameters; None if it is off.

    A folder that can't be used is only logged.
    """
    if folder is None or settings.cache_disk_mib == 0:
        return None
    try:
        states = StateFolder(folder, disk_capacity(settings, folder))
        adapters = [adapter.identity for adapter in configured_adapters(settings)]
        return DiskCache(states, fingerprint(model, params, adapters))
    except OSError as error:
        logger.warning("Conversations are not saved in %s: %s", folder, error)
        return None


def cache_capacity(settings: LlamaCppSection) -> int:
    """The maximum size of all sequences in host memory, in bytes."""
    if settings.cache_ram_mib >= 0:
        return settings.cache_ram_mib * _MIB
    return min(MAX_MEMORY_BYTES, available_memory() // MEMORY_DIVISOR)
