"""File access for tools: only as the permission check decided, only at the resolved path."""

import contextlib
import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from shepherd.config.files import Attributes, replace_at
from shepherd.errors import PlaceError, ToolError
from shepherd.tools.base import Access, AccessKind, ToolContext
from shepherd.tools.paths import reason
from shepherd.tools.permissions.tree import HardLinks


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to the resolved `path`; no reader ever sees an incomplete file.

    An existing file keeps its mode and owner. A new one gets 0666 without the umask's bits.
    Missing parents are created. Raises OSError for a link in the path, and also when the
    existing file is read-only.
    """
    directory = open_directory(path.parent, create=True)
    try:
        old = regular_status(directory, path.name)
        replace_at(directory, path.name, data, _attributes(old))
        os.fsync(directory)
    finally:
        os.close(directory)


def regular_status(directory: int, name: str) -> os.stat_result | None:
    """The status of the file to be replaced, None if there is none; raises OSError."""
    status = status_at(directory, name)
    if status is not None and not os.access(name, os.W_OK, dir_fd=directory):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    return status


def _attributes(old: os.stat_result | None) -> Attributes:
    if old is None:
        return Attributes()
    return Attributes(stat.S_IMODE(old.st_mode), (old.st_uid, old.st_gid))


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
        return self._opened(open_regular(path), kind)

    def open_below(self, directory: int, root: Path, name: str) -> BufferedReader:
        """Open the relative path `name` below an open directory whose path is `root`."""
        if self._context.denies(Access(AccessKind.READ, str(root / name))):
            raise ToolError(f"denied by rule: {root / name}")
        file = self._opened(open_below(directory, name), AccessKind.READ)
        if self._hard_links.may_be_incomplete(os.fstat(file.fileno())):
            file.close()
            raise ToolError(f"not read: {root / name} has further names (hard links)")
        return file

    def check_read(self, path: Path) -> None:
        """Raise the error of `open`, as far as it can be known without opening the file."""
        self._context.require(Access(AccessKind.READ, str(path)))
        directory = open_parent(path)
        try:
            self._check_links(existing_status(directory, path.name), AccessKind.READ)
        finally:
            os.close(directory)

    def open_directory(self, path: Path) -> int:
        """Open a directory and return its descriptor."""
        self._context.require(Access(AccessKind.READ, str(path)))
        return open_directory(path)

    def check_directory(self, path: Path) -> None:
        """Raise the error of `open_directory`, as far as it can be known before."""
        self._context.require(Access(AccessKind.READ, str(path)))
        directory = open_parent(path)
        try:
            status = os.stat(path.name or ".", dir_fd=directory, follow_symlinks=False)
        finally:
            os.close(directory)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def check_write(self, path: Path) -> None:
        """Raise the error of `write`, as far as it can be known before."""
        self._context.require(Access(AccessKind.WRITE, str(path)))
        try:
            directory = open_parent(path)
        except FileNotFoundError:
            return  # `write` creates it
        try:
            status = regular_status(directory, path.name)
        finally:
            os.close(directory)
        if status is not None:
            self._check_links(status, AccessKind.WRITE)

    def write(self, path: Path, data: bytes) -> None:
        """Replace the file, or create it with its parents."""
        self.check_write(path)
        write_atomic(path, data)

    def check_delete(self, path: Path) -> None:
        """Raise the error of `delete`, as far as it can be known before."""
        self._context.require(Access(AccessKind.WRITE, str(path)))
        directory = open_parent(path)
        try:
            _check_deletable(directory, path.name)
        finally:
            os.close(directory)

    def delete(self, path: Path) -> None:
        """Delete a file, or a link but not its target."""
        self._context.require(Access(AccessKind.WRITE, str(path)))
        directory = open_parent(path)
        try:
            _check_deletable(directory, path.name)
            os.unlink(path.name, dir_fd=directory)
        finally:
            os.close(directory)

    def _check_links(self, status: os.stat_result, kind: AccessKind) -> None:
        """Raise ToolError if the rules deny the file under another of its names."""
        if other := self._hard_links.denied_name(status, kind):
            raise ToolError(f"denied by rule: the file is also {other}")

    def _opened(self, descriptor: int, kind: AccessKind) -> BufferedReader:
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


_SEARCH = getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_NOT_FOLLOWED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})
LINK_ERROR = "a link was put into the path after it was checked; try again"


@contextmanager
def file_errors(path_text: str) -> Generator[None]:
    """Turn OSError into a PlaceError that names the path as the model wrote it."""
    try:
        yield
    except FileNotFoundError as error:
        raise PlaceError(f"no such file: {path_text}") from error
    except IsADirectoryError as error:
        raise PlaceError(f"is a directory: {path_text}") from error
    except OSError as error:
        kind = ToolError if error.errno == errno.ELOOP else PlaceError
        raise kind(f"{reason(error)}: {path_text}") from error


@contextmanager
def directory_errors(path_text: str) -> Generator[None]:
    """The same for the path of a directory."""
    with file_errors(path_text):
        try:
            yield
        except FileNotFoundError as error:
            raise PlaceError(f"no such directory: {path_text}") from error


def open_directory(path: Path, *, create: bool = False) -> int:
    """A descriptor of the directory at the resolved `path`; `create` makes it and its parents.

    Each name is looked up in the directory opened before it. A link among them raises OSError
    with ELOOP. So the result lies at `path` even if something is swapped meanwhile.
    """
    return _walk(path, os.O_RDONLY, create=create)


def open_parent(path: Path) -> int:
    """The same for the directory that contains `path`; it need not be readable."""
    return _walk(path.parent, _SEARCH, create=False)


def enter_directory(directory: int, name: str) -> int:
    """A descriptor of the directory `name` inside another one; raises OSError for a link."""
    return _enter(directory, name, os.O_RDONLY, create=False)


def open_regular(path: Path) -> int:
    """A descriptor for reading the regular file at the resolved `path`.

    Never waits on a FIFO and never follows a link. Raises OSError.
    """
    directory = open_parent(path)
    try:
        return open_regular_at(directory, path.name)
    finally:
        os.close(directory)


def open_below(directory: int, path: str) -> int:
    """The same for a relative path below an open directory."""
    *parents, name = path.split("/")
    if any(part in ("", ".", "..") for part in (*parents, name)):
        raise OSError(errno.EINVAL, "not a resolved path", path)
    parent = _descend(os.dup(directory), parents, _SEARCH, create=False)
    try:
        return open_regular_at(parent, name)
    finally:
        os.close(parent)


def open_regular_at(directory: int, name: str) -> int:
    """The same for a file inside an open directory."""
    existing_status(directory, name)
    with _report_links(directory, name):
        descriptor = os.open(name, _FILE, dir_fd=directory)
    try:
        _check_regular(name, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def status_at(directory: int, name: str) -> os.stat_result | None:
    """The status of the regular file `name`, None if missing; raises OSError for other kinds."""
    try:
        return existing_status(directory, name)
    except FileNotFoundError:
        return None


def existing_status(directory: int, name: str) -> os.stat_result:
    """The status of the regular file `name`; raises OSError if it is missing or of another kind."""
    status = os.stat(name or ".", dir_fd=directory, follow_symlinks=False)
    _check_regular(name, status)
    return status


def _walk(path: Path, flags: int, *, create: bool) -> int:
    if not path.is_absolute() or ".." in path.parts:
        raise OSError(errno.EINVAL, "not a resolved path", str(path))
    names = path.parts[1:]
    descriptor = os.open("/", (_SEARCH if names else flags) | _DIRECTORY)
    return _descend(descriptor, names, flags, create=create)


def _descend(descriptor: int, names: Sequence[str], flags: int, *, create: bool) -> int:
    """Follow `names` from `descriptor`, close it, and return the last directory's descriptor."""
    for remaining, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
        try:
            below = _enter(descriptor, name, _SEARCH if remaining else flags, create=create)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _enter(directory: int, name: str, flags: int, *, create: bool) -> int:
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
    with _report_links(directory, name):
        return os.open(name, flags | _DIRECTORY, dir_fd=directory)


@contextmanager
def _report_links(directory: int, name: str) -> Generator[None]:
    """Raise ELOOP where a link was not followed; systems differ in their error for it."""
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_FOLLOWED and _is_link(directory, name):
            raise OSError(errno.ELOOP, LINK_ERROR, name) from error
        raise


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _check_regular(name: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, LINK_ERROR, name)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", name)
