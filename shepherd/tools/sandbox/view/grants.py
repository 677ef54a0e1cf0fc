"""The paths that Landlock allows."""

import os
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from shepherd.tools.sandbox.inside.rules import (
    EXECUTE,
    READ,
    READ_DIRECTORY,
    USE,
    WRITE,
    WRITE_FILE,
)
from shepherd.tools.sandbox.view.layout import Mount, MountKind

Rights = list[tuple[str, int]]

_DEVICES = ("null", "zero", "full", "random", "urandom")


def box_rights(shown: Iterable[Mount]) -> Rights:
    """The rights in a file system of our own, where mounts already say what is read-only."""
    writable = [str(m.target) for m in shown if m.kind is MountKind.WRITE]
    places = [(path, WRITE) for path in (*writable, "/dev/shm")]
    return [("/", READ), ("/dev", USE), ("/proc", READ | WRITE_FILE), *places]


def bare_rights(
    shown: Iterable[Mount], protected: Collection[Path], hidden: Collection[Path]
) -> Rights:
    """The rights where no mount helps: a right on a directory holds for all that is in it.

    So a directory with something protected or hidden in it gets none as a whole, but each of its
    entries does. Nothing can be made or removed in such a directory.
    """
    rights = [(f"/dev/{name}", USE) for name in _DEVICES]
    rights.append(("/proc", READ))
    kept, masked = {*map(str, protected)}, {*map(str, hidden)}
    for mount in shown:
        if mount.kind is not MountKind.LINK:
            right = READ if mount.kind is MountKind.READ else WRITE
            rights += _grants(str(mount.source), right, kept, masked)
    return rights


def _grants(
    path: str, right: int, kept: AbstractSet[str], masked: AbstractSet[str]
) -> Iterator[tuple[str, int]]:
    if path in masked:
        return
    right = READ if path in kept else right
    special = masked if right == READ else masked | kept
    prefix = f"{path}/"
    below = {other for other in special if other.startswith(prefix)}
    if not below:
        yield path, right
        return
    yield path, READ_DIRECTORY | EXECUTE
    names = {other.removeprefix(prefix).partition("/")[0] for other in below}
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name in names:
                yield from _grants(entry.path, right, kept & below, masked & below)
            else:
                yield entry.path, right
