"""Control groups: limits for a command as a whole, if this user may create groups."""

import contextlib
import os
import secrets
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from shepherd.tools.sandbox.profile import Limits, memory_bound

_MOUNT = Path("/sys/fs/cgroup")
_ATTEMPTS = 40
_RETRY_DELAY = 0.025


class _Place(Struct, frozen=True):
    """A directory for new groups, and the limits there; `swap` is the file that limits swap."""

    parent: Path
    pids: str = ""
    memory: str = ""
    swap: str = ""


@contextmanager
def control_groups(limits: Limits) -> Generator[list[str]]:
    """The `cgroup.procs` files that a process has to join; none if groups can't be created.

    At the end, the remaining processes of the groups are killed if the kernel can kill a group.
    """
    made: list[Path] = []
    try:
        for place in _places():
            group = _make(place, limits)
            if group is not None:
                made.append(group)
        yield [str(group / "cgroup.procs") for group in made]
    finally:
        for group in made:
            _remove(group)


def remove_stale_groups() -> None:
    """Remove the groups of sessions that were killed."""
    for place in _places():
        for group in place.parent.glob("shepherd-*-*"):
            owner = group.name.split("-")[1]
            if owner.isdigit() and not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):
                    group.rmdir()


def _places() -> Iterator[_Place]:
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _number, controllers, path = line.split(":", 2)
        own = path.lstrip("/")
        if not controllers and (_MOUNT / "cgroup.controllers").exists():
            yield from _unified(_MOUNT / own)
        elif controllers == "pids":
            yield _Place(_MOUNT / "pids" / own, pids="pids.max")
        elif controllers == "memory":
            yield _Place(_MOUNT / "memory" / own, memory="memory.limit_in_bytes")


def _unified(own: Path) -> Iterator[_Place]:
    """Beside this process's group, because a group with processes can't have groups with limits."""
    for parent in (own.parent, own):
        enabled = _read(parent / "cgroup.subtree_control").split()
        if {"memory", "pids"} <= set(enabled) and os.access(parent / "cgroup.procs", os.W_OK):
            yield _Place(parent, "pids.max", "memory.max", "memory.swap.max")
            return


def _make(place: _Place, limits: Limits) -> Path | None:
    group = place.parent / f"shepherd-{os.getpid()}-{secrets.token_hex(4)}"
    numbers = {place.pids: limits.processes, place.swap: None if limits.memory is None else 0}
    if limits.memory is not None:
        numbers[place.memory] = memory_bound(limits.memory)
    limits_by_file = {
        name: number for name, number in numbers.items() if name and number is not None
    }
    if not limits_by_file:
        return None
    try:
        group.mkdir()
    except OSError:
        return None  # not delegated to this user
    try:
        for name, number in limits_by_file.items():
            if name != place.swap or (group / name).exists():
                (group / name).write_text(str(number), "ascii")
    except OSError:
        _remove(group)
        return None
    return group


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1", "ascii")
    for _attempt in range(_ATTEMPTS):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(_RETRY_DELAY)
        else:
            return


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
