"""The part of the file system that a command sees, as a list of mounts."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path

from msgspec import Struct

from shepherd.errors import ToolError
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.view.private import PrivateFiles
from shepherd.tools.sandbox.view.toolchains import (
    HOME_STARTUP,
    HOME_TOOLS,
    SYSTEM,
    SYSTEM_SECRETS,
    is_below,
    real,
    tool_paths,
)
from shepherd.tools.sandbox.view.tree import other_names

_RESOLVER = Path("/etc/resolv.conf")


class MountKind(IntEnum):
    """How a path is mounted."""

    READ = 0
    WRITE = 1
    LINK = 2  # a symbolic link to `source`
    LAYER = 3  # `target` itself, whose changes go to `source`


class Mount(Struct, frozen=True):
    """`source`, seen at `target`; later mounts cover earlier ones."""

    kind: MountKind
    target: Path
    source: Path

    @classmethod
    def read(cls, path: Path) -> "Mount":
        """A path that is read-only in its own place."""
        return cls(MountKind.READ, path, path)

    @classmethod
    def write(cls, path: Path) -> "Mount":
        """A path that is writable in its own place."""
        return cls(MountKind.WRITE, path, path)


def mounts(
    profile: Profile, private: PrivateFiles, environment: Mapping[str, str]
) -> tuple[Mount, ...]:
    """Everything that the command sees, except /proc, /dev and an empty /run.

    Raises ToolError if the profile can't be enforced.
    """
    check_root(real(profile.root))
    visible = visible_mounts(profile, private, environment)
    check_cwd(profile, visible)
    kept = [path for path in protected_paths(profile) if _is_visible(path, visible)]
    hidden = [path for path in hidden_paths(profile) if _is_visible(path, visible)]
    tops = [] if profile.read_only else writable_tops(profile)  # else nothing can be renamed
    pins = [Mount.write(path) for path in sorted(_pinned(tops, [*kept, *hidden]))]
    return (
        *visible,
        *pins,
        *(Mount.read(path) for path in sorted(kept)),
        *(_mask(path, private) for path in _outermost(hidden)),
    )


def visible_mounts(
    profile: Profile, private: PrivateFiles, environment: Mapping[str, str]
) -> list[Mount]:
    """The visible paths, before some of them are protected or hidden."""
    home = real(profile.home)
    base = [*_system(profile)]
    base += [Mount(MountKind.WRITE, Path(place), private.temp) for place in ("/tmp", "/var/tmp")]
    if len(home.parts) > 1:  # nothing is mounted on `/`, the home of some system users
        base.append(Mount(MountKind.WRITE, home, private.home))
    return [*base, *_visible(profile, environment)]


def check_cwd(profile: Profile, visible: Iterable[Mount]) -> None:
    """Raises ToolError if the command can't start in its directory."""
    cwd = real(profile.cwd)
    if not any(is_below(cwd, mount.target) for mount in visible):
        raise ToolError(f"the sandbox does not show {profile.cwd}: run the command outside of it")


def check_root(root: Path) -> None:
    """Raises ToolError if a writable `root` would expose the system."""
    holds_system = any(Path(p).is_relative_to(root) for p in ("/usr", "/etc", "/proc", "/dev"))
    if holds_system or any(root.is_relative_to(p) for p in ("/proc", "/dev", "/sys")):
        raise ToolError(f"a sandbox can't have {root} as its working directory")


def writable_tops(profile: Profile) -> list[Path]:
    """The working directory and the other writable places."""
    return [real(profile.root), *map(real, profile.writable)]


def protected_paths(profile: Profile) -> list[Path]:
    """The existing paths that must not change, by all their names in the root."""
    root, home = real(profile.root), real(profile.home)
    paths = [real(path) for path in profile.fixed if path.exists()]
    if home.is_relative_to(root):  # else the command has another home directory
        paths += [real(home / n) for n in (*HOME_STARTUP, *HOME_TOOLS) if (home / n).exists()]
    paths += other_names(writable_tops(profile), paths)
    return list(dict.fromkeys(paths))


def hidden_paths(profile: Profile) -> list[Path]:
    """The existing paths that must not be read, by all their names in the root."""
    paths = [real(path) for path in profile.hidden if path.exists()]
    paths += other_names(writable_tops(profile), paths)
    paths += [real(Path(name)) for name in SYSTEM_SECRETS if os.access(name, os.R_OK)]
    return list(dict.fromkeys(paths))


def _system(profile: Profile) -> Iterator[Mount]:
    """The mounts of the system, and of the file behind /etc/resolv.conf if there is a network."""
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink() and len(path.parts) == 2:  # such as /bin, which is a link to usr/bin
            yield Mount(MountKind.LINK, path, path.readlink())
        elif path.exists():
            yield Mount(MountKind.READ, path, real(path))
    resolver = real(_RESOLVER)
    if profile.network and resolver != _RESOLVER and resolver.exists():
        yield Mount.read(resolver)


def _visible(profile: Profile, environment: Mapping[str, str]) -> list[Mount]:
    """Outer paths before inner ones, and readable before writable ones."""
    read = [*tool_paths(profile, environment), *map(real, profile.readable)]
    write = writable_tops(profile)
    visible = [Mount.read(path) for path in read if path.exists() and path not in write]
    mount_working = Mount.read if profile.read_only else Mount.write
    visible += [mount_working(path) for path in write if path.exists()]
    if profile.layer is not None:
        visible.append(Mount(MountKind.LAYER, real(profile.root), real(profile.layer)))
    return sorted(visible, key=lambda mount: (len(mount.target.parts), mount.kind))


def _is_visible(path: Path, visible: Sequence[Mount]) -> bool:
    """Whether the command would see the real file at this path."""
    # later mounts cover earlier ones
    last = next((mount for mount in reversed(visible) if is_below(path, mount.target)), None)
    return last is not None and (last.source == last.target or last.kind is MountKind.LAYER)


def _pinned(tops: Iterable[Path], paths: Iterable[Path]) -> set[Path]:
    """The directories between `tops` and `paths`; as mounts of their own they can't be renamed."""
    return {
        parent
        for path in paths
        for top in tops
        if is_below(path, top)
        for parent in path.parents
        if parent != top and is_below(parent, top)
    }


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """The paths that do not lie below others of them; nothing can be mounted below a mask."""
    outer: list[Path] = []
    for path in sorted(paths):  # a directory comes before what is in it
        if not any(is_below(path, other) for other in outer):
            outer.append(path)
    return outer


def _mask(path: Path, private: PrivateFiles) -> Mount:
    """An empty file or directory over a hidden path."""
    empty = private.empty_directory if path.is_dir() else private.empty_file
    return Mount(MountKind.READ, path, empty)
