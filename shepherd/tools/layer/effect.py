"""What a command has done, read from its layer."""

import errno
import filecmp
import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shepherd.errors import ConflictError, ToolError
from shepherd.tools.files import opening
from shepherd.tools.layer.change import OPAQUE, Change, Deed, Sort, attribute, marks_of, status_of
from shepherd.tools.layer.layer import LayerFiles
from shepherd.tools.paths import reason
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.view.toolchains import SYSTEM, tool_paths

_SETS_OWNER = stat.S_ISUID | stat.S_ISGID
_SPECIAL = "not kept: a device, a pipe or a socket is of no use later"
_LEADS_OUT = "not kept: the link leads out of the working directory"
_WITHOUT_BIT = "kept, but not to run with the rights of its owner or group"

_REPLACED = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)
"""Errors at paths of the root that something else replaces at the same time."""


class Effect(Struct, frozen=True):
    """All that a command has changed, and what of it is left out, with the reason."""

    changes: tuple[Change, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.changes


def read_effect(layer: LayerFiles) -> Effect:
    """The effect of the commands that have worked in the layer; raises ToolError.

    From now on, Shepherd may read and move all that is in the layer.
    """
    reader = _Reader(layer)
    try:
        reader.read_all()
    except RecursionError as error:
        raise ToolError("there are too many directories in each other") from error
    except OSError as error:  # such as a path that is too long to be opened
        if error.errno in _REPLACED:
            raise ConflictError([os.path.relpath(error.filename, layer.root)]) from error
        raise ToolError(f"they can't be read: {reason(error)}") from error
    changes = with_renames(reader.changes, layer.upper, layer.root)
    return Effect(tuple(changes), tuple(reader.left_out))


class _Reader:
    """Compares the upper directory with the root; directories come before what is in them."""

    def __init__(self, layer: LayerFiles) -> None:
        self._upper = layer.upper
        self._root = layer.root
        self._closed = layer.closed
        self._remade: set[Path] = set()
        self.changes: list[Change] = []
        self.left_out: list[tuple[str, str]] = []

    def read_all(self) -> None:
        """Read the whole layer."""
        top = Path()
        self._opened(top, self._upper.lstat().st_mode)
        self._read_directory(top)

    def _read_directory(self, path: Path) -> None:
        """Read a directory of the layer that also exists in the root."""
        names = _names(self._upper / path)
        # it was removed and made again; directories in it have no mark of their own
        was_removed = attribute(self._upper / path, OPAQUE) == b"y" or path in self._remade
        for name in names:
            if was_removed:
                self._remade.add(path / name)
            self._read(path / name)
        if was_removed:
            for name in _names(self._root / path):
                if name not in names:
                    self._add_deleted(path / name)

    def _opened(self, path: Path, mode: int) -> int:
        """Give Shepherd the rights that the command took away; returns its own mode."""
        rights = stat.S_IRWXU if stat.S_ISDIR(mode) else stat.S_IRUSR
        if mode & rights != rights:
            (self._upper / path).chmod(stat.S_IMODE(mode) | rights)
            self._closed[path] = mode
        # a command that works in the layer after this may have set another one
        closed = self._closed.get(path, mode)
        return closed if closed | rights == mode | rights else mode

    def _read(self, path: Path, *, is_new: bool = False) -> None:
        """Read one path of the layer; `is_new` tells that its directory is not in the root."""
        status = os.lstat(self._upper / path)
        # below a link that became a directory, the root's path would lead elsewhere
        before = None if is_new else status_of(self._root / path)
        mode = status.st_mode
        if stat.S_ISCHR(mode) and status.st_rdev == 0:  # the kernel's mark of a deleted path
            if before is not None:
                self._add_deleted(path)
        elif stat.S_ISDIR(mode):
            self._read_made_or_kept(path, self._opened(path, mode), before)
        elif not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            self.left_out.append((str(path), _SPECIAL))
        else:
            if before is not None and stat.S_ISDIR(before.st_mode):
                self._add_deleted(path)
                before = None
            if stat.S_ISLNK(mode):
                self._add_link(path, before)
            else:
                self._add_file(path, self._opened(path, mode), status, before)

    def _read_made_or_kept(self, path: Path, mode: int, before: os.stat_result | None) -> None:
        mode = stat.S_IMODE(mode)
        if before is not None and stat.S_ISDIR(before.st_mode):
            if stat.S_IMODE(before.st_mode) != mode:
                marks = marks_of(before)
                change = Change(str(path), Deed.MODE, Sort.DIRECTORY, mode, before=marks)
                self.changes.append(change)
            self._read_directory(path)
            return
        if before is not None:
            self._add_deleted(path)  # a file, which the directory replaces
        self.changes.append(Change(str(path), Deed.MADE, Sort.DIRECTORY, mode))
        for name in _names(self._upper / path):
            self._read(path / name, is_new=True)

    def _add_file(
        self, path: Path, mode: int, status: os.stat_result, before: os.stat_result | None
    ) -> None:
        """Add a file that was made or copied up, unless it is as it was before."""
        mode = stat.S_IMODE(mode)
        old_mode = stat.S_IMODE(before.st_mode) if before and stat.S_ISREG(before.st_mode) else None
        is_same = old_mode is not None and self._is_same(path, status, before)
        if is_same and mode == old_mode:
            return  # only its times differ
        if mode & _SETS_OWNER:
            self.left_out.append((str(path), _WITHOUT_BIT))
            mode &= ~_SETS_OWNER
        if is_same and mode == old_mode:
            return
        deed = Deed.MADE if before is None else Deed.MODE if is_same else Deed.CHANGED
        marks = marks_of(before) if before else None
        change = Change(str(path), deed, Sort.FILE, mode, status.st_size, before=marks)
        self.changes.append(change)

    def _is_same(self, path: Path, status: os.stat_result, before: os.stat_result | None) -> bool:
        """Whether a file has the content that it had before."""
        try:
            return filecmp.cmp(self._root / path, self._upper / path, shallow=False)
        except PermissionError:  # the user may not read it, so the command could only set its mode
            return before is not None and marks_of(status)[2:] == marks_of(before)[2:]

    def _add_link(self, path: Path, before: os.stat_result | None) -> None:
        """Add a link that was made or copied up, unless it is as it was before."""
        target = str((self._upper / path).readlink())
        deed, marks = Deed.MADE, None
        if before is not None:
            deed, marks = Deed.CHANGED, marks_of(before)
            if stat.S_ISLNK(before.st_mode) and str((self._root / path).readlink()) == target:
                return
        if leads_out(self._root, path, target):
            self.left_out.append((str(path), _LEADS_OUT))
        else:
            self.changes.append(Change(str(path), deed, Sort.LINK, target=target, before=marks))

    def _add_deleted(self, path: Path) -> None:
        """Add a path of the root, with all that is below it."""
        status = os.lstat(self._root / path)
        change = Change(str(path), Deed.DELETED, Sort.FILE, before=marks_of(status))
        if stat.S_ISDIR(status.st_mode):
            self.changes.append(replace(change, sort=Sort.DIRECTORY))
            for name in _names(self._root / path):
                self._add_deleted(path / name)
        elif stat.S_ISLNK(status.st_mode):
            target = str((self._root / path).readlink())
            self.changes.append(replace(change, sort=Sort.LINK, target=target))
        else:
            self.changes.append(replace(change, size=status.st_size))


def leads_out(root: Path, path: Path, target: str) -> bool:
    """Whether a new link leads out of the root, to something else than programs."""
    names = Path(target).parts
    ups = next((n for n, name in enumerate(names) if name != ".."), len(names))
    if ".." in names[ups:]:
        return True  # a name before it may be a link, too
    place = Path(os.path.normpath(root / path.parent / target))
    if place.is_relative_to(root):
        return False
    place = Path(os.path.realpath(place))
    programs = tool_paths(Profile(root, root, Path.home()), os.environ)
    known = [Path(name) for name in SYSTEM if name != "/etc"]  # which root could change
    return not any(place.is_relative_to(p) for p in known) and not any(
        p in place.parents for p in programs
    )


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


MAX_COMPARED = 16 << 20
"""The size of the largest file that is recognised after it was moved."""


def with_renames(changes: Sequence[Change], upper: Path, root: Path) -> list[Change]:
    """The changes; what was made and is the same as something deleted knows where it was."""
    made = [c for c in changes if c.deed is Deed.MADE and c.sort is not Sort.DIRECTORY]
    deleted = [c for c in changes if c.deed is Deed.DELETED and c.sort is not Sort.DIRECTORY]
    alike = {_likeness(c) for c in made} & {_likeness(c) for c in deleted}
    new = {c.path: _content(upper, c) for c in made if _likeness(c) in alike}
    old = {c.path: _content(root, c) for c in deleted if _likeness(c) in alike}
    moves = _pairs(new, old, lambda path, content: (content, path.rpartition("/")[2]))
    for path in moves:
        del new[path], old[moves[path]]
    moves |= _pairs(new, old, lambda path, content: content or path)
    _add_directories(changes, moves)
    return [
        replace(c, moved_from=moves[c.path]) if c.deed is Deed.MADE and c.path in moves else c
        for c in changes
    ]


def _pairs(
    new: Mapping[str, str], old: Mapping[str, str], key: Callable[[str, str], object]
) -> dict[str, str]:
    """For each new path, an old one with the same key that no other new path has."""
    places: dict[object, list[str]] = {}
    for path, content in old.items():
        places.setdefault(key(path, content), []).append(path)
    moves: dict[str, str] = {}
    for path, content in new.items():
        if left := places.get(key(path, content)):
            moves[path] = left.pop()
    return moves


def _add_directories(changes: Sequence[Change], moves: dict[str, str]) -> None:
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
    return change.sort, change.target, change.size if change.size <= MAX_COMPARED else change.path


def _content(top: Path, change: Change) -> str:
    """What is equal if two files or links of one likeness are the same; "" if that says nothing."""
    if change.sort is Sort.LINK or not change.size:
        return change.target
    try:
        with os.fdopen(opening.open_regular(top / change.path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:  # it can't be read, or something else has replaced it
        return f"{top}/{change.path}"
