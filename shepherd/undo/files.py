"""The files of one session: captured into the store, and restored from it."""

import errno
import json
import math
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from shepherd.config.files import Attributes, replace_at
from shepherd.tools.files.opening import open_directory, open_parent, open_regular_at
from shepherd.tools.paths import reason
from shepherd.tools.permissions.content import is_key
from shepherd.undo.store import UndoStore

SECRET = "it may hold a secret"


class Kind(StrEnum):
    """What is at a path; UNKEPT is something whose content is not stored."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"
    UNKEPT = "unkept"


@dataclass(frozen=True, slots=True)
class FileState:
    """A path at one moment; equal states have equal content and mode.

    `detail` is the digest of a file, the target of a link, or marks an unkept file by its size and
    times. `why` gives the reason for UNKEPT. `owner` is the user's and the group's number.
    """

    kind: Kind
    mode: int = 0
    detail: str = ""
    why: str = field(default="", compare=False)
    owner: tuple[int, int] | None = field(default=None, compare=False)

    def to_json(self) -> list[object]:
        """The state as a JSON array; `state_from_json` is the inverse."""
        return [self.kind.value, self.mode, self.detail, self.why, self.owner]


ABSENT = FileState(Kind.ABSENT)


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a change, before and after it."""

    path: str
    before: FileState
    after: FileState


def entries_to_json(entries: tuple[Entry, ...]) -> str:
    """The entries as ASCII text, which also holds names that are not Unicode."""
    return json.dumps([[e.path, e.before.to_json(), e.after.to_json()] for e in entries])


def entries_from_json(text: str) -> tuple[Entry, ...]:
    """The inverse of `entries_to_json`."""
    rows = json.loads(text)
    return tuple(Entry(str(path), _state(old), _state(new)) for path, old, new in rows)


def _state(data: list[Any]) -> FileState:
    kind, mode, detail, why, owner = data
    return FileState(Kind(kind), int(mode), str(detail), str(why), tuple(owner) if owner else None)


@dataclass(frozen=True, slots=True)
class Capture:
    """Captures states; `keep` stores a file's bytes under their digest.

    `protects` tells whether a path holds a secret. Files over `max_bytes` and secrets are UNKEPT.
    """

    keep: Callable[[str, bytes], None]
    protects: Callable[[Path], bool]
    max_bytes: int

    def state(self, path: Path) -> FileState:
        """The state of the resolved `path`, whose last part may be a link."""
        try:
            directory = open_parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            return FileState(Kind.UNKEPT, detail="parent", why=reason(error))
        try:
            return self._in_directory(directory, path)
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            return FileState(Kind.UNKEPT, detail="unreadable", why=reason(error))
        finally:
            os.close(directory)

    def _in_directory(self, directory: int, path: Path) -> FileState:
        status = os.stat(path.name or ".", dir_fd=directory, follow_symlinks=False)
        owner = (status.st_uid, status.st_gid)
        if stat.S_ISLNK(status.st_mode):
            return FileState(Kind.LINK, 0, os.readlink(path.name, dir_fd=directory), "", owner)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            return FileState(Kind.DIRECTORY, mode, "", "", owner)
        if not stat.S_ISREG(status.st_mode):
            return FileState(Kind.UNKEPT, mode, "special", "it is not a regular file")
        if why := self._refusal(path, status):
            return unkept(status, why)
        descriptor = open_regular_at(directory, path.name)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(self.max_bytes + 1)
        if len(data) > self.max_bytes:
            return unkept(status, "it grows while it is read")
        if is_key(data):
            return unkept(status, SECRET)
        digest = sha256(data).hexdigest()
        self.keep(digest, data)
        return FileState(Kind.FILE, mode, digest, "", owner)

    def _refusal(self, path: Path, status: os.stat_result) -> str:
        """The reason not to keep the content; "" if there is none."""
        if status.st_size > self.max_bytes:
            return f"it is larger than {self.max_bytes:,} bytes"
        return SECRET if self.protects(path) else ""


def unkept(status: os.stat_result, why: str) -> FileState:
    """The state of a file whose content is not stored."""
    marks = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    mode = stat.S_IMODE(status.st_mode)
    return FileState(Kind.UNKEPT, mode, "-".join(map(str, marks)), why)


Content = Callable[[str], bytes | None]
"""Returns the stored bytes of a digest; None if they are not stored any more."""


def restore_order(targets: Sequence[tuple[str, FileState]]) -> list[tuple[str, FileState]]:
    """Removals first, the deepest before the others; then the rest, the highest first."""
    removals = [(path, state) for path, state in targets if state.kind is Kind.ABSENT]
    others = [(path, state) for path, state in targets if state.kind is not Kind.ABSENT]
    return sorted(removals, key=_depth, reverse=True) + sorted(others, key=_depth)


def restore(path: Path, state: FileState, content: Content) -> str:
    """Give `path` this state; returns the reason if it can't have it, otherwise "".

    A file is replaced as a whole, so a killed program leaves the old or the new one. A directory
    with further entries is not removed. Raises OSError.
    """
    if state.kind is Kind.UNKEPT:
        return state.why or "it was not kept"
    data = b""
    if state.kind is Kind.FILE:
        stored = content(state.detail)
        if stored is None:
            return "it is not kept any more"
        data = stored
    try:
        directory = _parent(path, create=state.kind is not Kind.ABSENT)
    except (FileNotFoundError, NotADirectoryError):
        return ""  # without its directory, the path is absent already
    try:
        return _restore_at(directory, path.name, state, data)
    finally:
        os.close(directory)


def _depth(target: tuple[str, FileState]) -> tuple[int, str]:
    return target[0].count("/"), target[0]


def _parent(path: Path, *, create: bool) -> int:
    return open_directory(path.parent, create=True) if create else open_parent(path)


def _restore_at(directory: int, name: str, state: FileState, data: bytes) -> str:
    current = _mode(directory, name)
    is_directory = current is not None and stat.S_ISDIR(current)
    if current is not None and is_directory != (state.kind is Kind.DIRECTORY):
        try:
            _remove(directory, name, is_directory=is_directory)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return "the directory holds other files"
        current = None
    match state.kind:
        case Kind.FILE:
            replace_at(directory, name, data, Attributes(state.mode, state.owner))
        case Kind.LINK:
            _link(directory, name, state.detail)
        case Kind.DIRECTORY:
            _make_directory(directory, name, state.mode, exists=current is not None)
        case _:
            if current is not None and not is_directory:
                _remove(directory, name, is_directory=False)
    return ""


def _mode(directory: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _remove(directory: int, name: str, *, is_directory: bool) -> None:
    if is_directory:
        os.rmdir(name, dir_fd=directory)
    else:
        os.unlink(name, dir_fd=directory)


def _link(directory: int, name: str, target: str) -> None:
    temporary = f".{secrets.token_hex(12)}"
    os.symlink(target, temporary, dir_fd=directory)
    try:
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _make_directory(directory: int, name: str, mode: int, *, exists: bool) -> None:
    if not exists:
        os.mkdir(name, dir_fd=directory)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


BATCH_FILES = 100


class KeptFiles:
    """Captures and restores the files of the session `session`; all calls from one thread.

    `protects` tells whether a path holds a secret; `max_bytes` is the size of the largest file
    that is kept.
    """

    def __init__(
        self, store: UndoStore, session: str, protects: Callable[[Path], bool], max_bytes: int
    ) -> None:
        self.session = session
        self.max_bytes = max_bytes
        self._store = store
        self._protects = protects

    def states(self, paths: Iterable[str], seconds: float = math.inf) -> dict[str, FileState]:
        """The states of resolved paths; their contents are in the store afterwards.

        Paths for which the time does not suffice are left out.
        """
        deadline = time.monotonic() + seconds
        waiting: dict[str, bytes] = {}
        capture = Capture(waiting.__setitem__, self._protects, self.max_bytes)
        states: dict[str, FileState] = {}
        for path in paths:
            if time.monotonic() > deadline:
                break
            if path not in states:
                states[path] = capture.state(Path(path))
                if len(waiting) >= BATCH_FILES:
                    self._flush(waiting)
        self._flush(waiting)
        return states

    def protects(self, path: Path) -> bool:
        """Whether the content is never kept."""
        return self._protects(path)

    def restore(self, path: str, state: FileState) -> str:
        """Give the path this state; returns the reason if it can't have it, otherwise ""."""
        try:
            return restore(Path(path), state, self._store.get)
        except OSError as error:
            return reason(error)

    def can_restore(self, state: FileState) -> str:
        """The reason why a state can't be restored; "" if it can."""
        if state.kind is Kind.UNKEPT:
            return state.why or "it was not kept"
        if state.kind is Kind.FILE and self._store.get(state.detail) is None:
            return "it is not kept any more"
        return ""

    def content(self, state: FileState) -> bytes | None:
        """The bytes of a file's state; those of a link are its target."""
        if state.kind is Kind.LINK:
            return f"symbolic link to {state.detail}\n".encode("utf-8", "surrogateescape")
        return self._store.get(state.detail) if state.kind is Kind.FILE else None

    def _flush(self, waiting: dict[str, bytes]) -> None:
        self._store.put(self.session, waiting)
        waiting.clear()
