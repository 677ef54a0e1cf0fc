"""How much of the machine's memory the prefix cache may take."""

import os
from pathlib import Path

from shepherd.config.sections import LlamaCppSection

SHARE = 8
MOST = 4 * 1024**3
"""By itself the cache takes an eighth of the free memory, at most 4 GiB."""

_MIB = 1024 * 1024
_CGROUP = Path("/sys/fs/cgroup")


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
