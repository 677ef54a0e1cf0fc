"""Confines commands with Landlock and seccomp, and with namespaces if they are available."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import HelperBox, common_orders, separate_orders
from shepherd.tools.sandbox.inside import native
from shepherd.tools.sandbox.inside.enclose import enclose, enclose_bare
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.seccomp import FilterOptions, Network, filter_for_this_machine
from shepherd.tools.sandbox.view import layout, toolchains
from shepherd.tools.sandbox.view.private import PrivateFiles, boxed_environment

Rights = list[tuple[str, int]]

_DEVICES = ("null", "zero", "full", "random", "urandom")

_TRUNCATION, _SIGNALS = 3, 6  # the first version of Landlock that covers each right


def bare_rights(
    visible: Iterable[layout.Mount], protected: Collection[Path], hidden: Collection[Path]
) -> Rights:
    """The rights without mounts; a right on a directory applies to everything in it.

    So a directory that contains a protected or hidden path gets no rights, but its other entries
    do. Nothing can be created or removed in such a directory.
    """
    rights = [(f"/dev/{name}", native.USE) for name in _DEVICES]
    rights.append(("/proc", native.READ))
    protected_names, hidden_names = {*map(str, protected)}, {*map(str, hidden)}
    for mount in visible:
        if mount.kind is not layout.MountKind.LINK:
            right = native.READ if mount.kind is layout.MountKind.READ else native.WRITE
            rights += _grants(str(mount.source), right, protected_names, hidden_names)
    return rights


def _grants(
    path: str, right: int, protected_names: AbstractSet[str], hidden_names: AbstractSet[str]
) -> Iterator[tuple[str, int]]:
    """The rights on a path, or on what is in it if something there has other rights."""
    if path in hidden_names:
        return
    right = native.READ if path in protected_names else right
    # where everything can only be read, a protected path has no other rights
    special = hidden_names if right == native.READ else hidden_names | protected_names
    prefix = f"{path}/"
    below = {other for other in special if other.startswith(prefix)}
    if not below:
        yield path, right
        return
    yield path, native.READ_DIRECTORY | native.EXECUTE
    on_the_way = {other.removeprefix(prefix).partition("/")[0] for other in below}
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name in on_the_way:
                yield from _grants(entry.path, right, protected_names & below, hidden_names & below)
            else:
                yield entry.path, right


class Landlock(HelperBox):
    """Namespaces, Landlock and a filter, set up by a small program that becomes the command."""

    name = "landlock"
    takes_layers = True

    def _orders(
        self, program: Program, profile: Profile, private: PrivateFiles
    ) -> tuple[Callable[..., None], dict[str, object]]:
        return enclose, separate_orders(program, profile, private)


class BareLandlock(HelperBox):
    """Landlock and a filter without namespaces; refuses more than the other boxes."""

    name = "landlock-bare"
    takes_layers = False  # it has no mounts

    def _orders(
        self, program: Program, profile: Profile, private: PrivateFiles
    ) -> tuple[Callable[..., None], dict[str, object]]:
        abi = native.version()
        if abi < _TRUNCATION:
            raise ToolError("Landlock without namespaces needs Linux 6.2 or newer")
        layout.check_root(toolchains.real(profile.root))
        environment = boxed_environment(program.environment, str(private.temp))
        environment["HOME"] = str(private.home)
        # without mounts, the real home can't be replaced: HOME names another that links to tools
        for tool in toolchains.home_tools(profile):
            link = private.home / tool.relative_to(profile.home)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(tool)
        visible = layout.visible_mounts(profile, private, environment)
        layout.check_cwd(profile, visible)
        network = Network.INTERNET if profile.network else Network.NONE
        # where Landlock does not confine signals, the filter refuses them
        options = FilterOptions(network, bare=True, signals=abi >= _SIGNALS)
        return enclose_bare, {
            **common_orders(program, profile, private),
            "environment": environment,
            "rights": bare_rights(
                visible, layout.protected_paths(profile), layout.hidden_paths(profile)
            ),
            "filter": filter_for_this_machine(options),
        }
