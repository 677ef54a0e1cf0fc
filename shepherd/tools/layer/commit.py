"""Carries what stands in a layer to the real files, also if the program is killed meanwhile."""

import json
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from shepherd.config.files import write_private
from shepherd.tools.files import opening
from shepherd.tools.layer.effect import Change, Deed, Sort
from shepherd.tools.layer.layer import Layer, copy_of, stale_layers
from shepherd.tools.sandbox.view.private import remove_tree

_INTENT = "intent.json"


class _Intent(Struct, frozen=True):
    """What a commit does: the new files are renamed from `source` to their places in `root`."""

    root: Path
    source: Path
    changes: Sequence[Change]


def commit(layer: Layer, changes: Sequence[Change]) -> None:
    """Make the changes real.

    Raises OSError; if that happens before anything is changed, the layer is as before. If the
    program is killed after that, `recover` does the rest.
    """
    intent = _Intent(layer.root, _renamable(layer, changes), changes)
    write_private(layer.base / _INTENT, _to_json(intent))
    _carry_out(intent)
    if intent.source != layer.upper:
        remove_tree(intent.source)
    (layer.base / _INTENT).unlink()


def recover(place: Path) -> list[Path]:
    """End what killed programs have begun: finish their commits, and drop their other layers.

    Returns the roots in which a commit was finished. Raises OSError.
    """
    finished: list[Path] = []
    for base in stale_layers(place):
        with suppress(FileNotFoundError):  # without an intent, nothing was changed
            intent = _from_json((base / _INTENT).read_text("ascii"))
            _carry_out(intent)
            finished.append(intent.root)
        with suppress(FileNotFoundError):  # it was killed before it made its link
            remove_tree(copy_of(base))
        remove_tree(base)
    return finished


def _renamable(layer: Layer, changes: Iterable[Change]) -> Path:
    """A directory on the root's file system with the new files: the layer itself, or a copy.

    A copy needs space, so it is made before anything is changed.
    """
    if layer.upper.stat().st_dev == layer.root.stat().st_dev:
        return layer.upper
    copy = copy_of(layer.base)
    copy.mkdir(mode=0o700)
    try:
        for change in changes:
            if change.deed in (Deed.MADE, Deed.CHANGED) and change.sort is not Sort.DIRECTORY:
                target = copy / change.path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(layer.upper / change.path, target, follow_symlinks=False)
    except BaseException:
        remove_tree(copy)
        raise
    return copy


def _carry_out(intent: _Intent) -> None:
    """Do what is not done yet; each step may have been done before the program was killed."""
    for change in reversed(intent.changes):  # what is in a directory goes before it
        if change.deed is Deed.DELETED:
            _remove(intent.root / change.path)
    kept = [change for change in intent.changes if change.deed is not Deed.DELETED]
    for change in kept:
        if change.sort is Sort.DIRECTORY and change.deed is Deed.MADE:
            os.close(opening.open_directory(intent.root / change.path, create=True))
        elif change.sort is not Sort.DIRECTORY and change.deed is not Deed.MODE:
            _place(intent.source / change.path, intent.root / change.path)
    for change in reversed(kept):  # a directory that may not be written gets its mode at the end
        if change.sort is Sort.DIRECTORY or change.deed is Deed.MODE:
            _change_mode(intent.root / change.path, change.mode)


def _remove(path: Path) -> None:
    with (
        suppress(FileNotFoundError),
        opening.closing_descriptor(opening.open_parent(path)) as parent,
    ):
        status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        remove = os.rmdir if stat.S_ISDIR(status.st_mode) else os.unlink
        remove(path.name, dir_fd=parent)


def _place(source: Path, target: Path) -> None:
    """Rename a new file to its place; it has gone if that was done before."""
    if not os.path.lexists(source):
        return
    if not source.is_symlink():
        for name in os.listxattr(source):
            if name.startswith("user.overlay."):  # the kernel's notes about the layer
                os.removexattr(source, name)
    with opening.closing_descriptor(opening.open_parent(target)) as parent:
        os.rename(source, target.name, dst_dir_fd=parent)


def _change_mode(path: Path, mode: int) -> None:
    with opening.closing_descriptor(opening.open_parent(path)) as parent:
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        with opening.closing_descriptor(descriptor):
            os.fchmod(descriptor, mode)


def _to_json(intent: _Intent) -> str:
    """The intent as ASCII text, which also holds names that are not Unicode."""
    changes = [[c.path, c.deed, c.sort, c.mode, c.size] for c in intent.changes]
    return json.dumps([str(intent.root), str(intent.source), changes])


def _from_json(text: str) -> _Intent:
    root, source, rows = json.loads(text)
    changes: list[Change] = []
    for path, deed, sort, mode, size in rows:
        changes.append(Change(path, Deed(deed), Sort(sort), mode, size))
    return _Intent(Path(root), Path(source), changes)
