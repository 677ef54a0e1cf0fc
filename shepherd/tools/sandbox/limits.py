"""Limits in the names of the system."""

import os
from collections.abc import Iterator

from shepherd.tools.sandbox.profile import Limits

SHARED_MEMORY = 1 << 30
"""Size of /dev/shm in bytes."""

_SHARE = 0.75  # of the machine's memory, at most


def resource_limits(limits: Limits) -> Iterator[tuple[str, int]]:
    """Names of RLIMIT_ with their numbers.

    Memory is counted as DATA: what a process could write to. Address space (AS) counts what
    runtimes only reserve, which is far more than they use.
    """
    if limits.processes is not None:
        yield "NPROC", limits.processes
    if limits.memory is not None:
        yield "DATA", memory_bound(limits.memory)
    if limits.file_size is not None:
        yield "FSIZE", limits.file_size
    if limits.open_files is not None:
        yield "NOFILE", limits.open_files
    if limits.cpu_seconds is not None:
        yield "CPU", limits.cpu_seconds
    yield "CORE", 0


def memory_bound(memory: int) -> int:
    """`memory`, and never more than most of what the machine has."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory, int(machine * _SHARE))
