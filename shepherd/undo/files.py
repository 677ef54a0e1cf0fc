"""The files of one session: captured into the store, and restored from it."""

import errno
import math
import os
import secrets
import stat
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from shepherd.config.files import Attributes, replace_at
from shepherd.tools.files import opening
from shepherd.tools.paths import reason
from shepherd.tools.permissions.content import is_key
from shepherd.undo.store import ABSENT, FileState, Kind, UndoStore

SECRET = "it may hold a secret"
TOO_MUCH = "there was too much to keep"
BATCH_BYTES = 8 << 20
"""Contents of about this size are written to the store at a time."""


class KeptFiles:
    """Captures and restores the files of the session `session`; all calls from one thread.

    `protects` tells whether a path holds a secret. Secrets and files over `max_bytes` are UNKEPT.
    """

    def __init__(
        self, store: UndoStore, session: str, protects: Callable[[Path], bool], max_bytes: int
    ) -> None:
        self.session = session
        self._max_bytes = max_bytes
        self._store = store
        self._protects = protects
        self._bytes_left = math.inf  # for further contents, in one call of `states`
        self._captured: dict[str, bytes] = {}
        """Contents by their digests that are not in the store yet."""
        self._captured_bytes = 0

    def states(
        self, paths: Iterable[str], seconds: float = math.inf, total_bytes: float = math.inf
    ) -> dict[str, FileState]:
        """The states of resolved paths; their contents are in the store afterwards.

        Paths for which the time does not suffice are left out. Files that do not fit into
        `total_bytes` together with those before them are UNKEPT.
        """
        self._bytes_left = total_bytes
        deadline = time.monotonic() + seconds
        states: dict[str, FileState] = {}
        among = dict.fromkeys(paths)
        for parent, names in groupby(among, os.path.dirname):
            siblings = list(names)
            try:
                directory = opening.open_parent(Path(siblings[0]))
            except OSError as error:
                states |= dict.fromkeys(siblings, _state_below(Path(parent), error, among))
                continue
            with opening.closing_descriptor(directory):
                for path in siblings:
                    if time.monotonic() > deadline:
                        break
                    states[path] = self._capture(directory, Path(path))
                    if self._captured_bytes > BATCH_BYTES:  # all at once could fill the memory
                        self._flush()
        self._flush()
        return states

    def restore(self, path: str, state: FileState, *, durable: bool = True) -> str:
        """Give the path this state; returns the reason if it can't have it, otherwise "".

        A file is replaced as a whole, so a killed program leaves the old or the new one; see
        `replace_at` for `durable`. A directory with further entries is not removed.
        """
        data = self.content(state)
        why_not = _obstacle(state, data)
        try:
            return why_not or _restore(Path(path), state, data or b"", durable=durable)
        except OSError as error:
            return reason(error)

    def obstacle(self, state: FileState) -> str:
        """The reason why the store can't give this state back; "" if it can."""
        return _obstacle(state, self.content(state))

    def content(self, state: FileState) -> bytes | None:
        """The bytes of a file's state; those of a link are its target."""
        if state.kind is Kind.LINK:
            return f"symbolic link to {state.detail}\n".encode("utf-8", "surrogateescape")
        return self._store.get(state.detail) if state.kind is Kind.FILE else None

    def _flush(self) -> None:
        """Write the captured contents to the store in one transaction."""
        self._store.put(self.session, self._captured)
        self._captured.clear()
        self._captured_bytes = 0

    def _capture(self, directory: int, path: Path) -> FileState:
        """The state of a path in its open directory, so that no link can lead elsewhere."""
        try:
            return self._capture_at(directory, path)
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            return FileState(Kind.UNKEPT, detail="unreadable", why=reason(error))

    def unkept(self, paths: Iterable[str], total_bytes: float) -> tuple[list[tuple[str, str]], int]:
        """The paths whose contents can't be kept, with the reasons, and the size of the others.

        It reads no contents. `total_bytes` is that of `states`.
        """
        losses: list[tuple[str, str]] = []
        size = 0
        for path in dict.fromkeys(paths):
            try:
                status = os.lstat(path)
            except OSError:  # nothing is there, or it can't be reached
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            why = self._why_unkept(Path(path), status)
            if not why and not os.access(path, os.R_OK):
                why = os.strerror(errno.EACCES).lower()
            if not why and size + status.st_size > total_bytes:
                why = TOO_MUCH
            if why:
                losses.append((path, why))
            else:
                size += status.st_size
        return losses, size

    def _why_unkept(self, path: Path, status: os.stat_result) -> str:
        """Why the content of a regular file is never kept; "" if it may be."""
        if status.st_size > self._max_bytes:
            return f"it is larger than {self._max_bytes:,} bytes (undo.file_mib)"
        return SECRET if self._protects(path) else ""

    def _capture_at(self, directory: int, path: Path) -> FileState:
        """As `_capture`; raises OSError."""
        # the root, which is its own parent, has no name
        status = os.stat(path.name or ".", dir_fd=directory, follow_symlinks=False)
        owner = (status.st_uid, status.st_gid)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(path.name, dir_fd=directory)
            return FileState(Kind.LINK, detail=target, owner=owner, marks=marks(status))
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            return FileState(Kind.DIRECTORY, mode, owner=owner)
        if not stat.S_ISREG(status.st_mode):
            return FileState(Kind.UNKEPT, mode, "special", "it is not a regular file")
        why = self._why_unkept(path, status)
        if not why and status.st_size > self._bytes_left:
            why = TOO_MUCH
        if why:
            return unkept(status, why)
        try:
            with os.fdopen(opening.open_regular_at(directory, path.name), "rb") as file:
                data = file.read(self._max_bytes + 1)
        except PermissionError as error:
            return unkept(status, reason(error))
        if len(data) > self._max_bytes:
            return unkept(status, "it grows while it is read")
        if is_key(data):  # under a name that no rule protects
            return unkept(status, SECRET)
        digest = sha256(data).hexdigest()
        self._captured[digest] = data
        self._captured_bytes += len(data)
        self._bytes_left -= len(data)
        return FileState(Kind.FILE, mode, digest, owner=owner, marks=marks(status))


def _obstacle(state: FileState, data: bytes | None) -> str:
    """The reason why a state can't be given back; `data` is what the store has of it."""
    if state.kind is Kind.UNKEPT:
        return state.why or "it was not kept"
    return "it is not kept any more" if state.kind is Kind.FILE and data is None else ""


def _state_below(parent: Path, error: OSError, among: Container[str]) -> FileState:
    """The state of what is in a directory that can't be opened."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ABSENT
    links = (str(path) for path in (*reversed(parent.parents), parent) if path.is_symlink())
    if error.errno == errno.ELOOP and next(links, "") in among:
        return ABSENT  # nothing is below a link that belongs to the same change
    # the same detail means the same state: such a path never counts as changed
    return FileState(Kind.UNKEPT, detail="parent", why=reason(error))


def unkept(status: os.stat_result, why: str) -> FileState:
    """The state of a file whose content is not stored."""
    its_marks = marks(status)
    return FileState(Kind.UNKEPT, stat.S_IMODE(status.st_mode), its_marks, why, marks=its_marks)


def marks(status: os.stat_result) -> str:
    """What marks a file: if it is the same, so is its content."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_ino}"


def restore_order(targets: Sequence[tuple[str, FileState]]) -> list[tuple[str, FileState]]:
    """Removals first, the deepest before the others; then the rest, the highest first.

    So a directory is empty when it goes, and there when its files come.
    """

    def depth(target: tuple[str, FileState]) -> tuple[int, str]:
        path, _ = target
        return path.count("/"), path

    removals = [target for target in targets if target[1].kind is Kind.ABSENT]
    others = [target for target in targets if target[1].kind is not Kind.ABSENT]
    return sorted(removals, key=depth, reverse=True) + sorted(others, key=depth)


def _restore(path: Path, state: FileState, data: bytes, *, durable: bool) -> str:
    """Give `path` this state; returns the reason if it can't have it. Raises OSError."""
    if state.kind is Kind.ABSENT:
        try:
            directory = opening.open_parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return ""  # without its directory, the path is absent already
    else:
        directory = opening.open_directory(path.parent, create=True)
    with opening.closing_descriptor(directory), opening.changing_names(directory):
        return _restore_at(directory, path.name, state, data, durable=durable)


def _restore_at(directory: int, name: str, state: FileState, data: bytes, *, durable: bool) -> str:
    """Give a name in an open directory this state; returns the reason if it can't have it."""
    try:
        present_mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        present_mode = None
    # a file replaces a file or a link at once, but neither can replace a directory
    if present_mode is not None and stat.S_ISDIR(present_mode) != (state.kind is Kind.DIRECTORY):
        remove = os.rmdir if stat.S_ISDIR(present_mode) else os.unlink
        try:
            remove(name, dir_fd=directory)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return "the directory holds other files"
        present_mode = None
    match state.kind:
        case Kind.FILE:
            attributes = Attributes(state.mode, state.owner)
            replace_at(directory, name, data, attributes, durable=durable)
        case Kind.LINK:
            _replace_by_link(directory, name, state.detail)
            _change_owner(directory, name, state.owner)
        case Kind.DIRECTORY:
            if present_mode is None:
                os.mkdir(name, dir_fd=directory)
                _change_owner(directory, name, state.owner)
            opening.change_mode(directory, name, state.mode)
        case _ if present_mode is not None:  # absent: the file or the link goes
            os.unlink(name, dir_fd=directory)
        case _:
            pass
    return ""


def _replace_by_link(directory: int, name: str, target: str) -> None:
    """Put a link in place of what is there, at once."""
    temporary = f".{secrets.token_hex(12)}"
    os.symlink(target, temporary, dir_fd=directory)
    try:
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _change_owner(directory: int, name: str, owner: tuple[int, int] | None) -> None:
    """Give a link or a directory its owner; a file has it before it has its name."""
    if owner is not None:
        with suppress(PermissionError):  # only root may give files away
            os.chown(name, *owner, dir_fd=directory, follow_symlinks=False)
