"""Runs commands in bubblewrap."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.own_programs import own_program
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import HelperBox, Preparation
from shepherd.tools.sandbox.helpers import HelperKind, helper_argv, payload
from shepherd.tools.sandbox.inside.enclose import finish_nested
from shepherd.tools.sandbox.inside.namespaces import kernel_files
from shepherd.tools.sandbox.inside.orders import launch
from shepherd.tools.sandbox.profile import SHARED_MEMORY, Profile, resource_limits
from shepherd.tools.sandbox.seccomp import FilterOptions, Network, filter_for_this_machine
from shepherd.tools.sandbox.view.layout import Mount, MountKind, mounts, writable_tops
from shepherd.tools.sandbox.view.private import PrivateFiles, boxed_environment
from shepherd.tools.sandbox.view.toolchains import is_below, real

_MAX_ARGUMENTS = 8900  # bubblewrap stops at 9000
_EMPTY_FILE, _EMPTY_DIRECTORY = "/run/empty-file", "/run/empty-directory"
_LAYER = "/run/layer"
_MOUNTS = {MountKind.READ: "--ro-bind", MountKind.WRITE: "--bind", MountKind.LINK: "--symlink"}


class Bubblewrap(HelperBox):
    """Namespaces made by `bwrap`: the command sees its own file system, processes and network."""

    name = "bubblewrap"
    takes_layers = True

    def _kind(self, profile: Profile) -> HelperKind:
        _executable()  # without it, no helper is started
        return HelperKind(launch, profile.limits)

    def _orders(
        self, program: Program, profile: Profile, prepared: Preparation
    ) -> dict[str, object]:
        """The command line of bubblewrap, whose last steps in the box are `finish_nested`."""
        environment = boxed_environment(program.environment, temp="/tmp")
        visible = mounts(profile, prepared.private, environment)
        outer, inner = _split(visible, writable_tops(profile))
        network = Network.INTERNET if profile.network else Network.OWN
        orders = {
            "mounts": [_inner(mount, prepared.private) for mount in inner],
            "layer": "" if profile.layer is None else _LAYER,
            "cwd": str(real(profile.cwd)),
            "user": os.geteuid(),
            "group": os.getegid(),
            "filter": filter_for_this_machine(FilterOptions(network)),
            "limits": resource_limits(profile.limits),
            "command": list(program.argv),
        }
        starter = prepared.send(payload(orders))
        if profile.layer is not None:
            outer.append(Mount(MountKind.WRITE, Path(_LAYER), real(profile.layer)))
        words = [*_namespaces(profile), *_places(outer, prepared.private)]
        words += ["--info-fd", str(prepared.helper.info)]
        if len(words) > _MAX_ARGUMENTS:
            raise ToolError("there are too many protected or secret files for the sandbox")
        arguments = prepared.send("\0".join(words).encode())
        start = helper_argv(finish_nested, starter)
        command = [_executable(), "--args", str(arguments), "--", *start]
        return {"command": command, "environment": environment}


def _executable() -> str:
    executable = own_program("bwrap")
    if executable is None:
        raise ToolError("bubblewrap (bwrap) is not installed")
    return executable


def _split(visible: Iterable[Mount], tops: Collection[Path]) -> tuple[list[Mount], list[Mount]]:
    """The mounts that bubblewrap makes, and those that lie below what commands can change."""
    outer: list[Mount] = []
    inner: list[Mount] = []
    shared_tops: list[Path] = []
    for mount in visible:
        if any(mount.target != top and is_below(mount.target, top) for top in shared_tops):
            inner.append(mount)
            continue
        if mount.kind is MountKind.LAYER:
            inner.append(mount)  # over the read-only directory, of which bubblewrap knows
            continue
        outer.append(mount)
        # what another boxed command could exchange for a link lies below such a mount
        if mount.target in tops and mount.source == mount.target:
            shared_tops.append(mount.target)
    return outer, inner


def _inner(mount: Mount, private: PrivateFiles) -> tuple[int, str, str]:
    """Kind, target and source of a mount, by its names in bubblewrap's file system."""
    masks = {private.empty_file: _EMPTY_FILE, private.empty_directory: _EMPTY_DIRECTORY}
    source = masks.get(mount.source, str(mount.source))
    if mount.kind is MountKind.LAYER:
        source = _LAYER
    return int(mount.kind), str(mount.target), source


def _namespaces(profile: Profile) -> Iterator[str]:
    """The words for new namespaces, and for the rights of the user 0 there."""
    yield from ("--unshare-all", "--die-with-parent", "--uid", "0", "--gid", "0")
    yield from ("--cap-drop", "ALL")
    # for `finish_nested`, which mounts, and then leaves the root of this namespace
    yield from ("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETFCAP")
    if profile.layer is not None:  # the kernel keeps a directory without rights beside a layer
        yield from ("--cap-add", "CAP_DAC_OVERRIDE")
    if profile.network:
        yield "--share-net"


def _places(visible: Iterable[Mount], private: PrivateFiles) -> Iterator[str]:
    """The words for the file system; what bubblewrap itself has made is read-only at the end."""
    yield from ("--proc", "/proc", "--dev", "/dev")
    for path in kernel_files():
        yield from ("--ro-bind", path, path)
    yield from ("--size", str(SHARED_MEMORY), "--perms", "1777", "--tmpfs", "/dev/shm")
    yield from ("--tmpfs", "/run")
    yield from ("--ro-bind", str(private.empty_file), _EMPTY_FILE)
    yield from ("--ro-bind", str(private.empty_directory), _EMPTY_DIRECTORY)
    for mount in visible:
        yield from (_MOUNTS[mount.kind], str(mount.source), str(mount.target))
    yield from ("--remount-ro", "/run", "--remount-ro", "/dev", "--remount-ro", "/")
