"""File access for tools: only as the permission check decided, only at the resolved path."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from shepherd.config.files import Attributes, replace_at
from shepherd.errors import ToolError
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.files import opening
from shepherd.tools.permissions.tree import HardLinks
from shepherd.tools.tool import ToolContext


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to the resolved `path`; no reader ever sees an incomplete file.

    An existing file keeps its mode and owner. A new one gets 0666 without the umask's bits.
    Missing parents are created. Raises OSError for a link in the path, and also when the
    existing file is read-only.
    """
    with opening.closing_descriptor(opening.open_directory(path.parent, create=True)) as directory:
        old = regular_status(directory, path.name)
        attributes = Attributes()
        if old is not None:
            attributes = Attributes(stat.S_IMODE(old.st_mode), (old.st_uid, old.st_gid))
        replace_at(directory, path.name, data, attributes)
        # the new name also survives a loss of power
        os.fsync(directory)


def regular_status(directory: int, name: str) -> os.stat_result | None:
    """The status of the file to be replaced, None if there is none; raises OSError."""
    status = opening.status_at(directory, name)
    # a rename would replace a read-only file, which only a write into it respects
    if status is not None and not os.access(name, os.W_OK, dir_fd=directory):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    return status


class FileAccess:
    """The files of one call.

    Every method takes a resolved path. It raises ToolError if the permission check did not cover
    that access to that path. It raises OSError for a link in the path or another failure.
    """

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._hard_links = HardLinks(context.cwd, context.denies)

    def open(self, path: Path, kind: AccessKind = AccessKind.READ) -> BufferedReader:
        """Open a regular file for reading; `kind` is WRITE if the call may replace it."""
        self._context.require(Access(kind, str(path)))
        return self._opened(opening.open_regular(path), kind)

    def open_below(self, directory: int, root: Path, name: str) -> BufferedReader:
        """Open the relative path `name` below an open directory whose path is `root`."""
        if self._context.denies(Access(AccessKind.READ, str(root / name))):
            raise ToolError(f"denied by rule: {root / name}")
        file = self._opened(opening.open_below(directory, name), AccessKind.READ)
        # the search for its other names stopped early, and a rule may deny one of them
        if self._hard_links.may_be_incomplete(os.fstat(file.fileno())):
            file.close()
            raise ToolError(f"not read: {root / name} has further names (hard links)")
        return file

    def check_read(self, path: Path) -> None:
        """Raise the error of `open`, as far as it can be known without opening the file."""
        self._context.require(Access(AccessKind.READ, str(path)))
        with opening.closing_descriptor(opening.open_parent(path)) as directory:
            self._check_links(opening.existing_status(directory, path.name), AccessKind.READ)

    def open_directory(self, path: Path) -> int:
        """Open a directory and return its descriptor."""
        self._context.require(Access(AccessKind.READ, str(path)))
        return opening.open_directory(path)

    def check_directory(self, path: Path) -> None:
        """Raise the error of `open_directory`, as far as it can be known before."""
        self._context.require(Access(AccessKind.READ, str(path)))
        with opening.closing_descriptor(opening.open_parent(path)) as directory:
            # the root has no name
            status = os.stat(path.name or ".", dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def check_write(self, path: Path) -> None:
        """Raise the error of `write`, as far as it can be known before."""
        self._context.require(Access(AccessKind.WRITE, str(path)))
        try:
            directory = opening.open_parent(path)
        except FileNotFoundError:
            return  # `write` creates it
        with opening.closing_descriptor(directory):
            status = regular_status(directory, path.name)
        if status is not None:
            self._check_links(status, AccessKind.WRITE)

    def write(self, path: Path, data: bytes) -> None:
        """Replace the file, or create it with its parents."""
        self.check_write(path)
        write_atomic(path, data)

    def check_delete(self, path: Path) -> None:
        """Raise the error of `delete`, as far as it can be known before."""
        self._context.require(Access(AccessKind.WRITE, str(path)))
        with opening.closing_descriptor(opening.open_parent(path)) as directory:
            _check_deletable(directory, path.name)

    def delete(self, path: Path) -> None:
        """Delete a file, or a link but not its target."""
        self._context.require(Access(AccessKind.WRITE, str(path)))
        with opening.closing_descriptor(opening.open_parent(path)) as directory:
            _check_deletable(directory, path.name)
            os.unlink(path.name, dir_fd=directory)

    def _check_links(self, status: os.stat_result, kind: AccessKind) -> None:
        """Raise ToolError if the rules deny the file under another of its names."""
        if other := self._hard_links.denied_name(status, kind):
            raise ToolError(f"denied by rule: the file is also {other}")

    def _opened(self, descriptor: int, kind: AccessKind) -> BufferedReader:
        """The open file, checked under its other names too; else it is closed."""
        file = os.fdopen(descriptor, "rb")
        try:
            self._check_links(os.fstat(descriptor), kind)
        except BaseException:
            file.close()
            raise
        return file


def _check_deletable(directory: int, name: str) -> None:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
