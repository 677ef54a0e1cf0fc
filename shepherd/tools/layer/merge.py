"""Finds what something else changed while a command ran, and merges it where that is safe.

A merge needs the file as it was before both changes. It is kept in time where it may be needed:
before a question, whose answer takes long, before the commit of another layer, and between the
calls of one layer. Without it there is no merge.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from shepherd.errors import ConflictError
from shepherd.tools.files import opening
from shepherd.tools.layer.change import (
    OPAQUE,
    Change,
    Deed,
    Marks,
    Sort,
    attribute,
    marks_of,
    status_of,
)
from shepherd.tools.layer.git import INDEX, is_of_git, same_index
from shepherd.tools.layer.layer import Layer, begun_ns
from shepherd.tools.program import run_git

_ORIGIN = "user.overlay.origin"
"""The kernel's mark of what is a copy of something below the layer."""
_MAX_MERGED = 4 << 20
"""The size of the largest file that is merged."""
_MAX_KEPT = 2000
_LABELS = ("this turn", "before", "something else, at the same time")
_MAX_CONFLICTS = 127
"""The highest number of conflicts that git tells by its exit code; others are errors."""


def keep_bases(base: Path, root: Path, paths: Iterable[str]) -> None:
    """Keep files of the root, if they are as the layer in `base` saw them; raises OSError."""
    begun = begun_ns(base)
    for path in paths:
        status, kept = status_of(root / path), _kept(base, path)
        if status is None or status.st_ctime_ns >= begun or kept.exists():
            continue
        data = _content(root / path, status)
        if data is not None:
            _keep(kept, data, status)


def _keep(kept: Path, data: bytes, status: os.stat_result) -> None:
    """Keep a file that has this content and status."""
    kept.parent.mkdir(exist_ok=True)
    new = kept.with_suffix(".new")
    new.write_bytes(data)
    new.chmod(stat.S_IMODE(status.st_mode))
    new.rename(kept)


def note_committed(layer: Layer, expected: Mapping[str, Marks]) -> None:
    """Take into account what was committed from a layer whose command goes on; raises OSError.

    What it changes there later is no conflict with that. What something else has replaced at once,
    so that it has not the `expected` marks, is left out.
    """
    for path, marks in expected.items():
        status = status_of(layer.root / path)
        if status is None or marks_of(status)[2:] != marks[2:]:
            continue
        layer.answered[path] = marks_of(status)
        data = _content(layer.root / path, status)
        if data is None:
            _kept(layer.base, path).unlink(missing_ok=True)
        else:
            _keep(_kept(layer.base, path), data, status)


def keep_bases_so_far(layer: Layer) -> None:
    """Keep the files of the root that have been changed in a layer that is used further."""
    changed = islice(layer.upper.rglob("*"), _MAX_KEPT)
    with suppress(OSError):  # then there is no merge
        paths = [str(path.relative_to(layer.upper)) for path in changed]
        keep_bases(layer.base, layer.root, paths)


def reconcile(layer: Layer, changes: Sequence[Change]) -> tuple[list[Change], list[str]]:
    """The changes that are left to commit, and the paths of those that were merged.

    Raises ConflictError if something else has changed a path since the layer was made, and only
    one of both changes can be kept; raises OSError.
    """
    result: list[Change] = []
    merged: list[str] = []
    conflicts: list[str] = []
    for change, status, other in _compared(layer, changes):
        both = _with_both(layer, change, status) if other else change
        if both is None:
            conflicts.append(f"{change.path} ({other})")
            continue
        result.append(both)
        if other:
            merged.append(change.path)
    if conflicts:
        raise ConflictError(conflicts)
    return result, merged


def show_conflicts(layer: Layer, changes: Sequence[Change]) -> list[str]:
    """Put into the layer what something else did, where only one of both changes can be kept.

    Returns a sentence about each path where the layer shows both sides now. With that, what is in
    the layer counts as the answer to them. Raises OSError.
    """
    sentences: list[str] = []
    for change, status, other in [*_compared(layer, changes)]:
        # a text of git is no text for the model
        if other and not is_of_git(change.path) and _with_both(layer, change, status) is None:
            sentence = _put_both_sides(layer, change, status)
            sentences += [f"{change.path} {sentence}"] if sentence else []
    return sentences


def _put_both_sides(layer: Layer, change: Change, status: os.stat_result | None) -> str:
    """How the layer shows both sides of a conflict; "" if it can't."""
    if status is None:
        with suppress(OSError):  # it is no copy of something below any more
            os.removexattr(layer.upper / change.path, _ORIGIN, follow_symlinks=False)
        return "was deleted there, and would be made again"
    if change.deed is Deed.DELETED:
        if not _is_back(layer, change.path):
            return ""
        layer.answered[change.path] = marks_of(status)
        return "was changed there, so it is back"
    theirs = _content(layer.root / change.path, status) if change.sort is Sort.FILE else None
    kept = _kept(layer.base, change.path)
    if theirs is None:
        return ""
    both = _merged(layer, layer.upper / change.path, kept, theirs, with_markers=True)
    if both is None:
        return ""
    put(layer, change.path, both)
    _keep(kept, theirs, status)  # what is changed there later is merged with this
    layer.answered[change.path] = marks_of(status)
    return "has both versions between conflict markers"


def _is_back(layer: Layer, path: str) -> bool:
    """Whether a deleted path is visible in the layer again, with all that was deleted with it."""
    top = layer.upper / path
    for place in (top, *top.parents):
        if place == layer.upper:
            break
        status = status_of(place)
        if status and stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            place.unlink()
        elif status and (place == top or _hides_below(place, status)):
            return False  # something else has taken its place
    return True


def _hides_below(place: Path, status: os.stat_result) -> bool:
    """Whether nothing below the layer is visible through a path of it."""
    return not stat.S_ISDIR(status.st_mode) or attribute(place, OPAQUE) == b"y"


_Comparison = tuple[Change, os.stat_result | None, Deed | None]


def _compared(layer: Layer, changes: Sequence[Change]) -> Iterator[_Comparison]:
    """The changes to do, with the status of each path now, and what something else did there."""
    removed = _removed(layer, changes)
    # what was below a link is elsewhere
    links = {c.path for c in changes if c.deed is Deed.DELETED and c.sort is Sort.LINK}
    for change in changes:
        if change.deed is Deed.MADE and change.path in removed:
            yield change, None, None  # it takes the place of what is looked at with its removal
            continue
        if change.deed is Deed.DELETED and change.path not in removed:
            continue
        is_below_link = links and any(str(p) in links for p in Path(change.path).parents)
        status = None if is_below_link else status_of(layer.root / change.path)
        if status is not None and change.path == INDEX and _is_only_refreshed(layer):
            yield replace(change, before=marks_of(status)), status, None
        elif not _is_done(change, status):
            yield change, status, _other_deed(layer, change, status)


def put(layer: Layer, path: str, data: bytes) -> None:
    """Replace a file of the layer, whose mode and owner stay; raises OSError."""
    file, new = layer.upper / path, layer.base / "new"
    status = file.lstat()
    new.write_bytes(data)
    with suppress(PermissionError):
        os.chown(new, status.st_uid, status.st_gid)
    shutil.copystat(file, new, follow_symlinks=False)
    os.utime(new)
    new.rename(file)


def _is_only_refreshed(layer: Layer) -> bool:
    """Whether another git has only noted in the index what it has looked at."""
    return same_index(layer.root, _kept(layer.base, INDEX), layer.root / INDEX)


def _is_done(change: Change, status: os.stat_result | None) -> bool:
    """Whether something else has done the same."""
    if change.deed is Deed.DELETED or status is None:
        return change.deed is Deed.DELETED and status is None
    is_new_directory = change.deed is Deed.MADE and change.sort is Sort.DIRECTORY
    return is_new_directory and stat.S_ISDIR(status.st_mode)


def _removed(layer: Layer, changes: Sequence[Change]) -> set[str]:
    """What is deleted; without directories in which something stays that may not be."""
    deleted = [change for change in changes if change.deed is Deed.DELETED]
    removed = {change.path for change in deleted}
    for change in reversed(deleted):  # what is in a directory goes before it
        path = layer.root / change.path
        entries = path.iterdir() if change.sort is Sort.DIRECTORY and path.is_dir() else ()
        if any(f"{change.path}/{entry.name}" not in removed for entry in entries):
            removed.discard(change.path)
    return removed


def _other_deed(layer: Layer, change: Change, status: os.stat_result | None) -> Deed | None:
    """What something else did to the path since the layer was made; `status` is that now."""
    if status is None:
        is_new = change.deed is Deed.MADE and not _was_below(layer, change)
        return None if is_new else Deed.DELETED
    if change.before is None:
        return Deed.MADE
    is_directory = change.sort is Sort.DIRECTORY and stat.S_ISDIR(status.st_mode)
    if is_directory and change.deed is Deed.MODE:
        return None
    if layer.answered.get(change.path) == marks_of(status) == change.before:
        return None
    # the time of a change of status can't be set by programs
    is_old = status.st_ctime_ns < layer.begun_ns and marks_of(status) == change.before
    return None if is_old else Deed.CHANGED


def _was_below(layer: Layer, change: Change) -> bool:
    """Whether a path that looks new may be a changed one that something else has deleted."""
    if change.moved_from or attribute(layer.upper / change.path, _ORIGIN) is None:
        return False
    parent = status_of((layer.root / change.path).parent)
    return parent is None or parent.st_ctime_ns >= layer.begun_ns


def _with_both(layer: Layer, change: Change, status: os.stat_result | None) -> Change | None:
    """The change, which now also has what something else did; None if that is not possible."""
    if status is None or change.sort is not Sort.FILE or change.deed is Deed.DELETED:
        return None
    ours, kept = layer.upper / change.path, _kept(layer.base, change.path)
    theirs, mode = _content(layer.root / change.path, status), change.mode
    if theirs is None:
        return None
    if change.size != len(theirs) or ours.read_bytes() != theirs:
        merged = None if is_of_git(change.path) else _merged(layer, ours, kept, theirs)
        if merged is None:
            return None
        put(layer, change.path, merged)
        if mode == stat.S_IMODE(kept.stat().st_mode):
            mode = stat.S_IMODE(status.st_mode)
    size = ours.stat().st_size
    return replace(change, deed=Deed.CHANGED, before=marks_of(status), mode=mode, size=size)


def _merged(
    layer: Layer, ours: Path, kept: Path, theirs: bytes, *, with_markers: bool = False
) -> bytes | None:
    """The text with both changes; None if they touch, or if this can't be known.

    With markers, both versions stand where they touch; only what is no text is None.
    """
    other, base = layer.base / "theirs", kept if kept.exists() else Path(os.devnull)
    if ours.stat().st_size > _MAX_MERGED or not (with_markers or kept.exists()):
        return None
    other.write_bytes(theirs)
    labels = [word for label in _LABELS for word in ("-L", label)]
    words = ["merge-file", "-p", "-q", *labels, str(ours), str(base), str(other)]
    process = run_git(layer.base, words)
    most = _MAX_CONFLICTS if with_markers else 0
    return process.stdout if process is not None and process.returncode <= most else None


def _kept(base: Path, path: str) -> Path:
    """Where the layer in `base` keeps what a path was before."""
    return base / "bases" / hashlib.sha256(os.fsencode(path)).hexdigest()


def _content(path: Path, status: os.stat_result) -> bytes | None:
    """The content of a file that has this status; None if it is large, or something else."""
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_MERGED:
        return None
    with os.fdopen(opening.open_regular(path), "rb") as file:
        data = file.read(_MAX_MERGED + 1)
        return data if marks_of(os.fstat(file.fileno())) == marks_of(status) else None
