"""File access for tools: only as the permission check decided, only at the resolved path."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from shepherd.config.files import Attributes, replace_at
from shepherd.errors import ToolError
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.files import opening
from shepherd.tools.paths import REAL_FILES, Origin
from shepherd.tools.permissions.links import HardLinks
from shepherd.tools.tool import ToolContext


def write_atomic(path: Path, data: bytes, origin: Origin = opening.REAL) -> None:
    """Write `data` to the resolved `path`; no reader ever sees an incomplete file.

    An existing file keeps its mode and owner. A new one gets 0666 without the umask's bits.
    Missing parents are created. Raises OSError for a link in the path, and also when the
    existing file is read-only.
    """
    parent = opening.open_directory(path.parent, origin, create=True)
    with opening.closing_descriptor(parent) as directory:
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
    """The files of one call, as its context sees them.

    Every method takes a resolved path. It raises ToolError if the permission check did not cover
    that access to that path. It raises OSError for a link in the path or another failure. What is
    open closes at the end of its context.
    """

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._hard_links = HardLinks(context.cwd, context.denies)

    @contextmanager
    def open(self, path: Path, kind: AccessKind = AccessKind.READ) -> Generator[BufferedReader]:
        """Open a regular file for reading; `kind` is WRITE if the call may replace it."""
        self._context.require(Access(kind, str(path)))
        with self._context.view.use() as origin:
            descriptor = opening.open_regular(path, origin)
            with os.fdopen(descriptor, "rb") as file:
                self._check_links(path, os.fstat(descriptor), kind)
                yield file

    @contextmanager
    def open_below(self, directory: int, root: Path, name: str) -> Generator[BufferedReader]:
        """Open the relative path `name` below an open directory whose path is `root`."""
        path = root / name
        if self._context.denies(Access(AccessKind.READ, str(path))):
            raise ToolError(f"denied by rule: {path}")
        descriptor = opening.open_below(directory, name)
        with os.fdopen(descriptor, "rb") as file:
            status = self._check_links(path, os.fstat(descriptor), AccessKind.READ)
            # the search for its other names stopped early, and a rule may deny one of them
            if self._hard_links.may_be_incomplete(status):
                raise ToolError(f"not read: {path} has further names (hard links)")
            yield file

    def check_read(self, path: Path) -> None:
        """Raise the error of `open`, as far as it can be known without opening the file."""
        self._context.require(Access(AccessKind.READ, str(path)))
        with self._parent(path) as directory:
            status = opening.existing_status(directory, path.name)
        self._check_links(path, status, AccessKind.READ)

    @contextmanager
    def open_directory(self, path: Path) -> Generator[int]:
        """Open a directory; the context is its descriptor."""
        self._context.require(Access(AccessKind.READ, str(path)))
        with (
            self._context.view.use() as origin,
            opening.closing_descriptor(opening.open_directory(path, origin)) as directory,
        ):
            yield directory

    def kind(self, path: Path) -> int | None:
        """The type of what is at the path, as in the mode of a file; None if nothing is there."""
        try:
            return stat.S_IFMT(self._status(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def check_directory(self, path: Path) -> None:
        """Raise the error of `open_directory`, as far as it can be known before."""
        if not stat.S_ISDIR(self._status(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def check_write(self, path: Path) -> None:
        """Raise the error of `write`, as far as it can be known before."""
        self._context.require(Access(AccessKind.WRITE, str(path)))
        try:
            with self._parent(path) as directory:
                status = regular_status(directory, path.name)
        except FileNotFoundError:
            return  # `write` creates the directory
        if status is not None:
            self._check_links(path, status, AccessKind.WRITE)

    def write(self, path: Path, data: bytes) -> None:
        """Replace the file, or create it with its parents."""
        self.check_write(path)
        with self._context.view.use() as origin:
            write_atomic(path, data, origin)

    def check_delete(self, path: Path) -> None:
        """Raise the error of `delete`, as far as it can be known before."""
        self._context.require(Access(AccessKind.WRITE, str(path)))
        with self._parent(path) as directory:
            _check_deletable(directory, path.name)

    def delete(self, path: Path) -> None:
        """Delete a file, or a link but not its target."""
        self._context.require(Access(AccessKind.WRITE, str(path)))
        with self._parent(path) as directory:
            _check_deletable(directory, path.name)
            os.unlink(path.name, dir_fd=directory)

    @contextmanager
    def _parent(self, path: Path) -> Generator[int]:
        """The open directory that contains the path."""
        with (
            self._context.view.use() as origin,
            opening.closing_descriptor(opening.open_parent(path, origin)) as directory,
        ):
            yield directory

    def _status(self, path: Path) -> os.stat_result:
        self._context.require(Access(AccessKind.READ, str(path)))
        with self._parent(path) as directory:  # in which the root has no name
            return os.stat(path.name or ".", dir_fd=directory, follow_symlinks=False)

    def _check_links(self, path: Path, status: os.stat_result, kind: AccessKind) -> os.stat_result:
        """Raise ToolError if the rules deny the file under another of its names.

        Returns its real status: in a layer, files have other devices than their names elsewhere.
        """
        if status.st_nlink > 1 and self._context.view is not REAL_FILES:
            with suppress(OSError):  # the layer has made the file
                status = os.lstat(path)
        if other := self._hard_links.denied_name(status, kind):
            raise ToolError(f"denied by rule: the file is also {other}")
        return status


def _check_deletable(directory: int, name: str) -> None:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
