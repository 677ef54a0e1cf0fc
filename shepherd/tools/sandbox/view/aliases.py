"""Hard links: the other names of a file."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from shepherd.errors import ToolError

MAX_ENTRIES = 500_000
_SKIPPED = "objects"  # git's content is named by its hash, and large


def other_names(tops: Iterable[Path], paths: Iterable[Path]) -> list[Path]:
    """The further names below `tops` of the files in `paths`, which may be directories.

    Walks through them only if there is a file with several names. Raises ToolError if that takes
    too long, because a name could be missed.
    """
    wanted: dict[tuple[int, int], int] = {}
    known = list(paths)
    for path in known:
        for file in _files(path):
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                wanted[status.st_dev, status.st_ino] = status.st_nlink
    if not wanted:
        return []
    inodes = {inode for _device, inode in wanted}
    names = [Path(entry.path) for entry in _walk(tops) if entry.inode() in inodes]
    return [
        name
        for name in names
        if not any(name.is_relative_to(path) for path in known) and _identity(name) in wanted
    ]


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for directory, directories, files in os.walk(path):
        directories[:] = [name for name in directories if name != _SKIPPED]
        yield from (Path(directory, name) for name in files)


def _walk(tops: Iterable[Path]) -> Iterator[os.DirEntry[str]]:
    pending, count = [str(top) for top in tops], 0
    while pending:
        try:
            entries = os.scandir(pending.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                count += 1
                if count > MAX_ENTRIES:
                    raise ToolError(
                        "a protected or secret file has further names (hard links), and the "
                        "working directory is too large to look for them: remove the links"
                    )
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry
