"""Finds what was only moved: in a layer, that is a deletion and a new file."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from shepherd.tools.files import opening
from shepherd.tools.layer.change import Change, Deed, Sort

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
