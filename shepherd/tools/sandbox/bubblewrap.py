"""Commands in bubblewrap."""

import contextlib
import os
import shutil
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.program import Program
from shepherd.tools.sandbox.box import Report, ignore_refusals
from shepherd.tools.sandbox.layout import Mount, MountKind, mounts
from shepherd.tools.sandbox.limits import resource_limits
from shepherd.tools.sandbox.private import private_files
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.surroundings import boxed_environment

_HELPER = Path(__file__).parent / "inside" / "start.py"
_INSIDE = "/run/shepherd/start.py"
_SHARED_MEMORY = 1 << 30
_MAX_ARGUMENTS = 8900  # bubblewrap stops at 9000
# SIGTERM must not end bubblewrap itself, which would kill the command before it can clean up
_IGNORING_TERM = ("/bin/sh", "-c", "trap '' TERM; exec \"$@\"", "sh")
_MOUNTS = {MountKind.READ: "--ro-bind", MountKind.WRITE: "--bind", MountKind.LINK: "--symlink"}


class Bubblewrap:
    """Namespaces made by `bwrap`: the command sees its own file system, processes and network."""

    name = "bubblewrap"

    @contextmanager
    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> Generator[Program, None, None]:
        """See `Box.enter`."""
        executable = shutil.which("bwrap")
        if executable is None:
            raise ToolError("bubblewrap (bwrap) is not installed")
        with ExitStack() as resources:
            private = resources.enter_context(private_files())
            environment = boxed_environment(program.environment, "/tmp")
            shown = mounts(profile, private, environment)
            words = [*_namespaces(profile), *_places(shown), "--chdir", str(profile.cwd)]
            if len(words) > _MAX_ARGUMENTS:
                raise ToolError("there are too many protected or secret files for the sandbox")
            arguments = resources.enter_context(memory_file("\0".join(words).encode()))
            argv = [*_IGNORING_TERM, executable, "--args", str(arguments), "--"]
            argv += [*_starter(profile), "--", *program.argv]
            yield replace(
                program,
                argv=argv,
                cwd=Path("/"),
                environment=environment,
                pass_fds=(*program.pass_fds, arguments),
            )


def _namespaces(profile: Profile) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL")
    if profile.network:
        yield "--share-net"


def _places(shown: Sequence[Mount]) -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev")
    yield from ("--size", str(_SHARED_MEMORY), "--perms", "1777", "--tmpfs", "/dev/shm")
    yield from ("--tmpfs", "/run", "--ro-bind", str(_HELPER), _INSIDE)
    for mount in shown:
        yield from (_MOUNTS[mount.kind], str(mount.source), str(mount.target))
    yield from ("--remount-ro", "/run", "--remount-ro", "/dev", "--remount-ro", "/")


def _starter(profile: Profile) -> list[str]:
    limits = [f"{name}={number}" for name, number in resource_limits(profile.limits)]
    return [os.path.realpath(sys.executable), "-I", "-S", _INSIDE, *limits]


@contextmanager
def memory_file(content: bytes) -> Generator[int, None, None]:
    """A descriptor to read `content` from."""
    descriptor = os.memfd_create("shepherd")
    with contextlib.closing(os.fdopen(descriptor, "w+b", buffering=0)) as file:
        file.write(content)
        file.seek(0)
        yield descriptor
