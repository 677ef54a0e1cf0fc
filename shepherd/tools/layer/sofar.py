"""A copy of what is in a layer while its command goes on, so that it can be committed."""

import os
import shutil
import stat
from contextlib import suppress
from copy import copy
from pathlib import Path

from shepherd.tools.files import opening
from shepherd.tools.layer.commit import copy_data
from shepherd.tools.layer.layer import Layer
from shepherd.tools.sandbox.view.private import remove_tree

_COPY = "so-far"


def copy_so_far(layer: Layer) -> Layer:
    """A layer whose `upper` is a copy of this one's, over the same files since the same time.

    What vanishes meanwhile is left out. Raises OSError.
    """
    copied = copy(layer)
    copied.upper, copied.closed = layer.base / _COPY, {}
    remove_tree(copied.upper)  # of a copy that was not finished
    with opening.closing_descriptor(opening.open_directory(layer.upper)) as top:
        _copy_directory(top, copied.upper)
    return copied


def _copy_directory(source: int, target: Path) -> None:
    """Copy an open directory. The command may swap what is in it: nothing is followed."""
    target.mkdir()
    for name in os.listdir(source):
        with suppress(FileNotFoundError, NotADirectoryError):
            _copy_entry(source, name, target / name)
    shutil.copystat(f"/proc/self/fd/{source}", target)


def _copy_entry(directory: int, name: str, target: Path) -> None:
    """Copy what has this name in an open directory; pipes and sockets are left out."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        with opening.closing_descriptor(opening.enter_directory(directory, name)) as source:
            _copy_directory(source, target)
    elif stat.S_ISLNK(mode):
        target.symlink_to(os.readlink(name, dir_fd=directory))
    elif stat.S_ISCHR(mode) and status.st_rdev == 0:  # the kernel's mark of a deleted path
        os.mknod(target, stat.S_IFCHR, 0)
    elif stat.S_ISREG(mode):
        with (
            os.fdopen(opening.open_regular_at(directory, name), "rb") as old,
            target.open("xb") as new,
        ):
            copy_data(old.fileno(), new.fileno())
            shutil.copystat(f"/proc/self/fd/{old.fileno()}", f"/proc/self/fd/{new.fileno()}")
