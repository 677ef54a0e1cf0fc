"""The sizes of the cache's tiers, as the settings and the machine allow."""

import logging
import os
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

SHARE = 8
MOST = 4 * 1024**3
"""By itself the cache takes an eighth of the free memory, at most 4 GiB."""

_CGROUP = Path("/sys/fs/cgroup")


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


def cache_capacity(settings: LlamaCppSection) -> int:
    """The bytes that sequences may take in host memory."""
    if settings.cache_ram_mib >= 0:
        return settings.cache_ram_mib * _MIB
    return min(MOST, available_memory() // SHARE)


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Bytes that could be taken without harm; half of all memory where nobody tells."""
    free = _meminfo(meminfo)
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if free is None:
        free = _all_memory() // 2
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free


def _meminfo(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None


def _all_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
