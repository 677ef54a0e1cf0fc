"""The paths that Landlock allows."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from shepherd.tools.sandbox.inside.rules import (
    EXECUTE,
    READ,
    READ_DIRECTORY,
    USE,
    WRITE,
    WRITE_FILE,
)
from shepherd.tools.sandbox.layout import Mount, MountKind

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
    kept, masked = frozenset(protected), frozenset(hidden)
    for mount in shown:
        if mount.kind is not MountKind.LINK:
            right = WRITE if mount.kind is MountKind.WRITE else READ
            rights += _grants(mount.source, right, kept, masked)
    return rights


def _grants(
    path: Path, right: int, kept: frozenset[Path], masked: frozenset[Path]
) -> Iterator[tuple[str, int]]:
    if path in masked:
        return
    right = READ if path in kept else right
    special = masked if right == READ else masked | kept
    if not any(other.is_relative_to(path) for other in special if other != path):
        yield str(path), right
        return
    yield str(path), READ_DIRECTORY | EXECUTE
    with os.scandir(path) as entries:
        for entry in entries:
            yield from _grants(Path(entry.path), right, kept, masked)
