"""Opens exactly the file at a resolved path: directory by directory, never through a link."""

import contextlib
import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from shepherd.errors import PlaceError, ToolError
from shepherd.tools.paths import Origin, reason

_SEARCH = getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHANGES_NAMES = stat.S_IWUSR | stat.S_IXUSR
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
REAL = Origin()
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
        # a link in a resolved path was put there meanwhile: the place itself is not the reason
        kind = ToolError if error.errno == errno.ELOOP else PlaceError
        raise kind(f"{reason(error)}: {path_text}") from error


@contextmanager
def directory_errors(path_text: str) -> Generator[None]:
    """Turn OSError into a PlaceError that names the path of a directory."""
    with file_errors(path_text):
        try:
            yield
        except FileNotFoundError as error:
            raise PlaceError(f"no such directory: {path_text}") from error


@contextmanager
def closing_descriptor(descriptor: int) -> Generator[int]:
    """A context that closes the descriptor at its end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def changing_names(directory: int) -> Generator[None]:
    """A context in which its owner may change the names in an open directory, whatever its mode."""
    mode = stat.S_IMODE(os.fstat(directory).st_mode)
    if mode & _CHANGES_NAMES == _CHANGES_NAMES or os.geteuid() == 0:
        yield
        return
    with contextlib.suppress(PermissionError):  # another user's, whose group may do it
        _set_mode(directory, mode | _CHANGES_NAMES)
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):
            _set_mode(directory, mode)


def change_mode(directory: int, name: str, mode: int) -> None:
    """Set the mode of the file or directory `name`, readable or not; a link raises OSError."""
    descriptor = os.open(name, _SEARCH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    with closing_descriptor(descriptor):
        _set_mode(descriptor, mode)


def _set_mode(descriptor: int, mode: int) -> None:
    if hasattr(os, "O_PATH"):  # such a descriptor only leads to the file
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    else:
        os.fchmod(descriptor, mode)


def open_directory(path: Path, origin: Origin = REAL, *, create: bool = False) -> int:
    """A descriptor of the directory at the resolved `path`; `create` makes it and its parents.

    Each name is looked up in the directory opened before it, from the `origin` on. A link among
    them raises OSError with ELOOP. So the result lies at `path` even if something is swapped
    meanwhile.
    """
    return _walk(path, os.O_RDONLY, origin, create=create)


def open_parent(path: Path, origin: Origin = REAL) -> int:
    """A descriptor of the directory that contains the resolved `path`; it need not be readable."""
    return _walk(path.parent, _SEARCH, origin, create=False)


def enter_directory(directory: int, name: str) -> int:
    """A descriptor of the directory `name` inside another one; raises OSError for a link."""
    return _enter(directory, name, os.O_RDONLY, create=False)


def open_regular(path: Path, origin: Origin = REAL) -> int:
    """A descriptor for reading the regular file at the resolved `path`.

    Never waits on a FIFO and never follows a link. Raises OSError.
    """
    with closing_descriptor(open_parent(path, origin)) as directory:
        return open_regular_at(directory, path.name)


def open_below(directory: int, path: str) -> int:
    """A descriptor for reading the regular file at a relative path below an open directory."""
    *parents, name = path.split("/")
    if any(part in ("", ".", "..") for part in (*parents, name)):
        raise OSError(errno.EINVAL, "not a resolved path", path)
    with closing_descriptor(_descend(os.dup(directory), parents, _SEARCH, create=False)) as parent:
        return open_regular_at(parent, name)


def exists_below(directory: int, path: str) -> bool:
    """Whether something is at a relative path below an open directory, not through a link."""
    *parents, name = path.split("/")
    try:
        top = _descend(os.dup(directory), parents, _SEARCH, create=False)
        with closing_descriptor(top) as parent:
            os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return True


def open_regular_at(directory: int, name: str) -> int:
    """A descriptor for reading the regular file `name` in an open directory; raises OSError."""
    existing_status(directory, name)  # opening a device may already have an effect
    with _report_links(directory, name):
        descriptor = os.open(name, _FILE, dir_fd=directory)
    try:
        _check_regular(name, os.fstat(descriptor))  # it may have been swapped in between
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
    # the root, which is its own parent, has no name
    status = os.stat(name or ".", dir_fd=directory, follow_symlinks=False)
    _check_regular(name, status)
    return status


def _walk(path: Path, flags: int, origin: Origin, *, create: bool) -> int:
    """A descriptor of the directory at `path`, opened with `flags`, without following a link."""
    if not path.is_absolute() or ".." in path.parts:
        raise OSError(errno.EINVAL, "not a resolved path", str(path))
    start, names = origin.steps(path)
    # the directories on the way need not be readable
    descriptor = os.open(start, (_SEARCH if names else flags) | _DIRECTORY)
    return _descend(descriptor, names, flags, create=create)


def _descend(descriptor: int, names: Sequence[str], flags: int, *, create: bool) -> int:
    """Follow `names` from `descriptor`, close it, and return the last directory's descriptor."""
    for number, name in enumerate(names, start=1):
        own_flags = flags if number == len(names) else _SEARCH
        with closing_descriptor(descriptor):
            below = _enter(descriptor, name, own_flags, create=create)
        descriptor = below
    return descriptor


def _enter(directory: int, name: str, flags: int, *, create: bool) -> int:
    """A descriptor of the directory `name` in an open one; ELOOP if it is a link."""
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
    """Whether the name in an open directory is a link; not if it can't be looked at any more."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _check_regular(name: str, status: os.stat_result) -> None:
    """Raise the OSError that says what is at the name instead of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, LINK_ERROR, name)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", name)
