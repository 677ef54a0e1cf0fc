"""The directory of a layer: it takes what a command changes, and the real files stay as they are.

It is the upper directory of an overlay mount, whose lower one is the working directory. So all that
a command has changed stands here, and nothing of the working directory has to be looked through.
"""

import asyncio
import fcntl
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from shepherd.config.files import make_private_directory
from shepherd.errors import ToolError
from shepherd.tools.files.opening import closing_descriptor
from shepherd.tools.layer.change import Marks
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.boxes.probe import capture
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.view.private import remove_tree

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = "root"
_TRIAL_SECONDS = 10.0


class LayerFiles:
    """The directory `base` of a layer over the directory `root`, whoever has made it."""

    def __init__(self, base: Path, root: Path) -> None:
        self.base = base
        self.root = root
        self.upper = base / "upper"
        """What has changed, by the same relative paths as in the root."""
        self.closed: dict[Path, int] = {}  # the modes of what Shepherd has opened for itself

    @property
    def undecided(self) -> Path:
        """A file that is there if the user decides on the layer later."""
        return self.base / "undecided"


class Layer(LayerFiles):
    """A new layer over the directory `root`, made in the directory `place`; raises OSError.

    As long as the process lives it holds a lock, so that `stale_layers` leaves the layer alone.
    Who mounts the layer holds `mounted`: a command, or a view. The kernel allows one at a time.
    """

    def __init__(self, place: Path, root: Path) -> None:
        make_private_directory(place)
        # boxes refuse links in the paths of what they mount
        super().__init__(place.resolve() / f"layer-{secrets.token_hex(8)}", root)
        self.mounted = asyncio.Lock()
        self.begun_ns = time.time_ns()
        self.answered: dict[str, Marks] = {}
        """What something else did to paths, which the layer takes into account."""
        with locked(place):
            self.base.mkdir(mode=0o700)
            self._lock = os.open(self.base, _DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self.upper.mkdir()
            with suppress(PermissionError):  # of a group that the user is not in
                os.chown(self.upper, -1, root.stat().st_gid)
            shutil.copystat(root, self.upper)  # what is made at its top is as it would be there
            (self.base / "work").mkdir(mode=0o700)
            (self.base / _ROOT).symlink_to(root)  # for other programs
        except OSError:
            self.drop()
            raise

    def others(self) -> Iterator[Path]:
        """The directories of other layers over the same root."""
        for base in self.base.parent.glob("layer-*"):
            with suppress(OSError):  # it is being removed
                if base != self.base and root_of(base) == self.root:
                    yield base

    def drop(self) -> None:
        """Forget all changes; raises OSError."""
        remove_tree(self.base)
        os.close(self._lock)


def root_of(base: Path) -> Path:
    """What the layer in `base` lies over; raises OSError."""
    return (base / _ROOT).readlink()


def begun_ns(base: Path) -> int:
    """When the layer in `base` was made."""
    return (base / _ROOT).lstat().st_ctime_ns


def copy_of(base: Path) -> Path:
    """Where a commit puts the new files of the layer if its root is on another file system."""
    return root_of(base) / f".shepherd-{base.name}"


@contextmanager
def locked(place: Path) -> Generator[None]:
    """A context in which no other program makes, commits or recovers layers in this place."""
    with closing_descriptor(os.open(place.resolve(), _DIRECTORY)) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def stale_layers(place: Path) -> Iterator[Path]:
    """The layers of programs that were killed; nobody else finds them meanwhile."""
    if not place.is_dir():
        return
    with locked(place):
        for base in sorted(place.glob("layer-*")):
            with (
                suppress(OSError),  # its program is alive, or has just removed it
                closing_descriptor(os.open(base, _DIRECTORY)) as descriptor,
            ):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield base


def find_place(box: Box, profile: Profile, places: Iterable[Path]) -> Path | None:
    """The first of the places in which a layer works in this box; None if there is none."""
    for place in places if box.takes_layers else ():
        with suppress(OSError, ToolError, subprocess.TimeoutExpired):
            layer = Layer(place, profile.root)
            try:
                line = Program(["true"], profile.root)
                with box.enter(
                    line, replace(profile, cwd=profile.root, layer=layer.base)
                ) as program:
                    if capture(program, _TRIAL_SECONDS).code == 0:
                        return place
            finally:
                layer.drop()
    return None
