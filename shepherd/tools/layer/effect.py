"""What a command has done, read from its layer."""

import errno
import filecmp
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shepherd.tools.files import opening
from shepherd.tools.layer.layer import Layer

_OPAQUE = "user.overlay.opaque"
_MAX_COMPARED = 16 << 20
"""The size of the largest file that is recognised after it was moved."""
_SETS_USER = stat.S_ISUID | stat.S_ISGID


class Deed(StrEnum):
    """What happened to a path."""

    MADE = "made"
    CHANGED = "changed"
    DELETED = "deleted"
    MODE = "mode"  # only the mode differs


class Sort(StrEnum):
    """What a path is, or was before it was deleted."""

    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"


class Change(Struct, frozen=True):
    """One path of an effect, relative to the root; `size` is in bytes, of files only.

    What was renamed is MADE, and `moved_from` is the DELETED path that was the same. `target` is
    that of a link.
    """

    path: str
    deed: Deed
    sort: Sort
    mode: int = 0
    size: int = 0
    target: str = ""
    moved_from: str = ""


class Effect(Struct, frozen=True):
    """All that a command has changed, and what can't be committed, with the reason."""

    changes: tuple[Change, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.changes


def read_effect(layer: Layer) -> Effect:
    """The effect of the commands that have worked in the layer; raises OSError."""
    reader = _Reader(layer.upper, layer.root)
    reader.read_directory(Path())
    changes = _with_renames(reader.changes, layer.upper, layer.root)
    return Effect(tuple(changes), tuple(reader.left_out))


class _Reader:
    """Compares the upper directory with the root; directories come before what is in them."""

    def __init__(self, upper: Path, root: Path) -> None:
        self._upper = upper
        self._root = root
        self.changes: list[Change] = []
        self.left_out: list[tuple[str, str]] = []

    def read_directory(self, path: Path) -> None:
        """Read a directory of the layer that also exists in the root."""
        names = _names(self._upper / path)
        for name in names:
            self._read(path / name)
        if _is_opaque(self._upper / path):  # the directory was removed and made again
            for name in _names(self._root / path):
                if name not in names:
                    self._add_deleted(path / name)

    def _read(self, path: Path) -> None:
        """Read one path of the layer."""
        status = os.lstat(self._upper / path)
        before = _status(self._root / path)
        mode = status.st_mode
        if stat.S_ISCHR(mode) and status.st_rdev == 0:  # the kernel's mark of a deleted path
            if before is not None:
                self._add_deleted(path)
        elif stat.S_ISDIR(mode):
            self._read_made_or_kept(path, status, before)
        elif not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            self.left_out.append((str(path), "a device, a pipe or a socket is of no use later"))
        elif mode & _SETS_USER:
            self.left_out.append((str(path), "it would run with the rights of its owner"))
        else:
            self._add_file(path, status, before)

    def _read_made_or_kept(
        self, path: Path, status: os.stat_result, before: os.stat_result | None
    ) -> None:
        mode = stat.S_IMODE(status.st_mode)
        if before is not None and stat.S_ISDIR(before.st_mode):
            if stat.S_IMODE(before.st_mode) != mode:
                self.changes.append(Change(str(path), Deed.MODE, Sort.DIRECTORY, mode))
            self.read_directory(path)
            return
        if before is not None:
            self._add_deleted(path)  # a file, which the directory replaces
        self.changes.append(Change(str(path), Deed.MADE, Sort.DIRECTORY, mode))
        for name in _names(self._upper / path):
            self._read(path / name)

    def _add_file(self, path: Path, status: os.stat_result, before: os.stat_result | None) -> None:
        """Add a file or a link that was made or copied up, unless it is as it was before."""
        sort = Sort.LINK if stat.S_ISLNK(status.st_mode) else Sort.FILE
        mode = stat.S_IMODE(status.st_mode)
        deed = Deed.MADE
        if before is not None and stat.S_ISDIR(before.st_mode):
            self._add_deleted(path)
        elif before is not None:
            deed = Deed.CHANGED
            if stat.S_IFMT(before.st_mode) == stat.S_IFMT(status.st_mode) and self._is_same(path):
                if sort is Sort.LINK or stat.S_IMODE(before.st_mode) == mode:
                    return  # only its times differ
                deed = Deed.MODE
        if sort is Sort.LINK:
            target = str((self._upper / path).readlink())
            self.changes.append(Change(str(path), deed, sort, mode, target=target))
        else:
            self.changes.append(Change(str(path), deed, sort, mode, status.st_size))

    def _is_same(self, path: Path) -> bool:
        """Whether the content of a file, or the target of a link, is as it was before."""
        old, new = self._root / path, self._upper / path
        if new.is_symlink():
            return old.readlink() == new.readlink()
        return filecmp.cmp(old, new, shallow=False)

    def _add_deleted(self, path: Path) -> None:
        """Add a path of the root, with all that is below it."""
        status = os.lstat(self._root / path)
        if stat.S_ISDIR(status.st_mode):
            self.changes.append(Change(str(path), Deed.DELETED, Sort.DIRECTORY))
            for name in _names(self._root / path):
                self._add_deleted(path / name)
            return
        if stat.S_ISLNK(status.st_mode):
            target = str((self._root / path).readlink())
            self.changes.append(Change(str(path), Deed.DELETED, Sort.LINK, target=target))
        else:
            change = Change(str(path), Deed.DELETED, Sort.FILE, size=status.st_size)
            self.changes.append(change)


def _with_renames(changes: Sequence[Change], upper: Path, root: Path) -> list[Change]:
    """The changes; what was made and is the same as something deleted knows where it was."""
    made = [c for c in changes if c.deed is Deed.MADE and c.sort is not Sort.DIRECTORY]
    deleted = [c for c in changes if c.deed is Deed.DELETED and c.sort is not Sort.DIRECTORY]
    alike = {_likeness(c) for c in made} & {_likeness(c) for c in deleted}
    places: dict[object, list[str]] = {}
    for change in deleted:
        if _likeness(change) in alike:
            places.setdefault(_content(root, change), []).append(change.path)
    moves: dict[str, str] = {}
    for change in made:
        left = places.get(_content(upper, change), []) if _likeness(change) in alike else []
        same_name = [path for path in left if Path(path).name == Path(change.path).name]
        # that two files are empty says nothing
        choice = same_name or (left if change.size or change.target else [])
        if choice:
            moves[change.path] = choice[0]
            left.remove(choice[0])
    _add_moved_directories(changes, moves)
    return [replace(c, moved_from=moves[c.path]) if c.path in moves else c for c in changes]


def _add_moved_directories(changes: Sequence[Change], moves: dict[str, str]) -> None:
    """Add the new directories in which everything comes from the same deleted directory."""
    removed = {c.path for c in changes if c.deed is Deed.DELETED and c.sort is Sort.DIRECTORY}
    made = [c.path for c in changes if c.deed is Deed.MADE]
    above: dict[str, set[str]] = {}  # of each new directory, where its entries were
    for path in reversed(made):  # what is in a directory goes before it
        origins = above.get(path, set())
        if len(origins) == 1 and origins <= removed:
            moves[path] = next(iter(origins))
        parent, _, name = path.rpartition("/")
        old_parent, _, old_name = moves.get(path, "").rpartition("/")
        above.setdefault(parent, set()).add(old_parent if old_name == name else "")


def _likeness(change: Change) -> object:
    """What is equal if two files or links may be; large files are never compared."""
    return change.sort, change.target, change.size if change.size <= _MAX_COMPARED else change.path


def _content(top: Path, change: Change) -> object:
    """What is equal if two files or links of one likeness are the same."""
    if change.sort is Sort.LINK:
        return change.target
    with os.fdopen(opening.open_regular(top / change.path), "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_opaque(path: Path) -> bool:
    """Whether a directory of the layer hides what the one below it holds."""
    try:
        return os.getxattr(path, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return False
        raise


def conflicts(layer: Layer, changes: Iterable[Change]) -> Iterator[str]:
    """The paths that something else has changed since the layer was made; see `Layer.begun_ns`."""
    for change in changes:
        status = _status(layer.root / change.path)
        # the time of a change of status can't be set by programs
        if status is None or stat.S_ISDIR(status.st_mode):
            continue
        if status.st_ctime_ns >= layer.begun_ns:
            yield change.path
