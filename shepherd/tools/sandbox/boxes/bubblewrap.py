"""Runs commands in bubblewrap."""

import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from shepherd.errors import ToolError
from shepherd.tools.program import Program, Startable
from shepherd.tools.sandbox.boxes.box import Report, ignore_refusals
from shepherd.tools.sandbox.boxes.preparation import Spares, preparation
from shepherd.tools.sandbox.helper.helper import HelperKind
from shepherd.tools.sandbox.helper.payload import helper_argv, payload
from shepherd.tools.sandbox.inside.namespaces import kernel_files
from shepherd.tools.sandbox.profile import SHARED_MEMORY, Profile, resource_limits
from shepherd.tools.sandbox.seccomp.filter import FilterOptions, Network, filter_for_this_machine
from shepherd.tools.sandbox.view.layout import Mount, MountKind, mounts
from shepherd.tools.sandbox.view.private import boxed_environment
from shepherd.tools.sandbox.view.toolchains import real

_MAX_ARGUMENTS = 8900  # bubblewrap stops at 9000
_MOUNTS = {MountKind.READ: "--ro-bind", MountKind.WRITE: "--bind", MountKind.LINK: "--symlink"}


class Bubblewrap:
    """Namespaces made by `bwrap`: the command sees its own file system, processes and network."""

    name = "bubblewrap"

    def __init__(self) -> None:
        self._helpers = Spares()

    @contextmanager
    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> Generator[Startable]:
        """See `Box.enter`."""
        executable = shutil.which("bwrap")
        if executable is None:
            raise ToolError("bubblewrap (bwrap) is not installed")
        kind = HelperKind("launch", profile.limits)
        with preparation(profile, report, self._helpers, kind) as prepared:
            environment = boxed_environment(program.environment, "/tmp")
            visible = mounts(profile, prepared.private, environment)
            network = Network.INTERNET if profile.network else Network.OWN
            rules = prepared.send(filter_for_this_machine(FilterOptions(network)))
            orders = {
                "limits": dict(resource_limits(profile.limits)),
                "command": list(program.argv),
            }
            starter = prepared.send(payload("start", orders))
            words = [*_namespaces(profile), *_places(visible), "--chdir", str(real(profile.cwd))]
            words += ["--seccomp", str(rules), "--info-fd", str(prepared.helper.info)]
            if len(words) > _MAX_ARGUMENTS:
                raise ToolError("there are too many protected or secret files for the sandbox")
            arguments = prepared.send("\0".join(words).encode())
            command = [executable, "--args", str(arguments), "--", *helper_argv(starter)]
            yield prepared.order(program, {"command": command, "environment": environment})


def _namespaces(profile: Profile) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL")
    if profile.network:
        yield "--share-net"


def _places(visible: Sequence[Mount]) -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev")
    for path in kernel_files():
        yield from ("--ro-bind", path, path)
    yield from ("--size", str(SHARED_MEMORY), "--perms", "1777", "--tmpfs", "/dev/shm")
    yield from ("--tmpfs", "/run")
    for mount in visible:
        yield from (_MOUNTS[mount.kind], str(mount.source), str(mount.target))
    yield from ("--remount-ro", "/run", "--remount-ro", "/dev", "--remount-ro", "/")
