"""The access and limits of a boxed command."""

import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path

from msgspec import Struct, field

from shepherd.tools.sandbox.repository import fixed_paths

SHARED_MEMORY = 1 << 30
"""Size of /dev/shm in bytes."""

_SHARE = 0.75  # the maximum share of the machine's memory


class Limits(Struct, frozen=True):
    """Upper bounds on the resources of a command; None means no bound.

    `memory` and `file_size` are in bytes, and apply to each process and file.
    """

    processes: int | None = 1024
    memory: int | None = 8 << 30
    file_size: int | None = 16 << 30
    open_files: int | None = 4096
    cpu_seconds: int | None = 3600


class Profile(Struct, frozen=True):
    """The access that a box gives a command; all paths are absolute.

    `root` is the session's working directory, which is readable and writable. The command starts in
    `cwd`. The `protected` paths can be read, but not changed or replaced; a missing one is moved
    aside if the command creates it. The `hidden` paths look empty. `readable` and `writable` are
    allowed in addition to the system and the toolchains below `home`. With `read_only`, `root` and
    `writable` can only be read. `layer` is the directory that takes the changes in `root`, which
    then stays as it is. In the git directories `repositories` only data may change.
    `find_shielded` looks for protected and hidden paths again: new ones are moved aside, too.
    """

    root: Path
    cwd: Path
    home: Path
    protected: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    network: bool = False
    read_only: bool = False
    layer: Path | None = None
    repositories: tuple[Path, ...] = ()
    find_shielded: Callable[[], set[Path]] | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def fixed(self) -> tuple[Path, ...]:
        """The `protected` paths, and those in repositories; what is in a layer may change.

        Links do not lead around this: what they lead to is protected in a layer too.
        """
        paths = (*self.protected, *chain.from_iterable(map(fixed_paths, self.direct_repositories)))
        if self.layer is None:
            return paths
        return tuple(p for p in paths if not p.is_relative_to(self.root) or p.is_symlink())

    @property
    def direct_repositories(self) -> tuple[Path, ...]:
        """The git directories that the command changes directly, as no layer lies over them."""
        layered = None if self.layer is None else self.root
        return tuple(g for g in self.repositories if not (layered and g.is_relative_to(layered)))


def resource_limits(limits: Limits) -> dict[str, int]:
    """The names of RLIMIT_ that are bounded, with their numbers.

    Memory is counted as DATA: the memory that a process can write to. Address space (AS) also
    counts reserved memory, which is far more than runtimes use. It is bounded by a share of the
    machine's, too.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    bounds = {
        "NPROC": limits.processes,
        "DATA": None if limits.memory is None else min(limits.memory, int(machine * _SHARE)),
        "FSIZE": limits.file_size,
        "NOFILE": limits.open_files,
        "CPU": limits.cpu_seconds,
        "CORE": 0,  # a dump of a command's memory may hold secrets
    }
    return {name: bound for name, bound in bounds.items() if bound is not None}
