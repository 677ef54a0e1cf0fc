"""The parts of an effect, each of which the user can keep or drop."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from shepherd.tools.files import linediff
from shepherd.tools.layer import describe
from shepherd.tools.layer.change import Change, Deed, Sort
from shepherd.tools.layer.effect import Effect
from shepherd.tools.layer.git import GIT
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.merge import put
from shepherd.tools.permissions.approval import Part
from shepherd.tools.text import pluralize, valid_text

_MAX_PARTS = 200
_MAX_TITLES = 3


class _Piece(Struct, frozen=True):
    """Changes that belong together, or one hunk of a file that was `before`."""

    part: Part
    paths: frozenset[str]
    before: str = ""
    hunk: linediff.Hunk | None = None


class Parts:
    """The parts of some changes in a layer, with diffs of about `limit` characters together."""

    def __init__(self, layer: Layer, changes: Sequence[Change], limit: int) -> None:
        self._layer = layer
        self._pieces: list[_Piece] = []
        groups = _groups(changes)
        for number, group in enumerate(groups):
            if len(self._pieces) >= _MAX_PARTS and number + 1 < len(groups):
                paths = frozenset(change.path for rest in groups[number:] for change in rest)
                title = pluralize(len(groups) - number, "other change", ",")
                self._pieces.append(_Piece(Part("", title), paths))
                break
            pieces = list(_pieces(layer, group, limit))
            limit -= sum(len(piece.part.diff) for piece in pieces)
            limit -= sum(map(describe.effort, group))
            self._pieces += pieces

    @property
    def offered(self) -> tuple[Part, ...]:
        """What the user can choose from; nothing if there is only one part."""
        parts = tuple(piece.part for piece in self._pieces)
        return parts if len(parts) > 1 else ()

    def choose(self, numbers: Collection[int]) -> tuple[set[str], list[str]]:
        """Leave only these parts, counted from 1, in the files of the layer.

        Returns the paths to commit, and the names of what is dropped. Raises OSError.
        """
        chosen = [p for n, p in enumerate(self._pieces, 1) if n in numbers]
        dropped = [p for n, p in enumerate(self._pieces, 1) if n not in numbers]
        for path in {piece.part.path for piece in dropped if piece.hunk}:
            kept = [piece for piece in chosen if piece.part.path == path and piece.hunk]
            if kept:
                text = linediff.with_hunks(kept[0].before, (p.hunk for p in kept if p.hunk))
                [name] = kept[0].paths
                put(self._layer, name, text.encode())
        paths = {path for piece in chosen for path in piece.paths}
        return paths, [piece.part.name for piece in dropped]


def with_directories(changes: Sequence[Change], paths: Collection[str]) -> set[str]:
    """The paths, and those of the new directories that they are in."""
    made = {c.path for c in changes if c.sort is Sort.DIRECTORY and c.deed is Deed.MADE}
    above = {str(parent) for path in paths for parent in Path(path).parents} if made else set[str]()
    return {*paths, *(made & above)}


def _groups(changes: Sequence[Change]) -> list[list[Change]]:
    """The changes, with those together that make no sense alone.

    These are what is in a deleted or renamed directory or in a repository, a rename with its
    deletion, and what takes the place of something else. A new directory goes with what is in it.
    """
    deleted = {c.path for c in changes if c.deed is Deed.DELETED}
    moved = {c.path for c in changes if c.moved_from and c.sort is Sort.DIRECTORY}
    wholes = {*deleted, *moved, GIT}
    tops = {c.path: _top(c.path, wholes) for c in changes}
    joined: dict[str, str] = {}
    for change in changes:
        if change.moved_from in deleted:
            old, new = _end(joined, tops[change.moved_from]), _end(joined, tops[change.path])
            if old != new:
                joined[new] = old
    above = {str(parent) for change in changes for parent in Path(change.path).parents}
    groups: dict[str, list[Change]] = {}
    for change in changes:
        top = tops[change.path]
        is_new = change.sort is Sort.DIRECTORY and change.deed is Deed.MADE
        if not is_new or top in wholes or change.path not in above:
            groups.setdefault(_end(joined, top), []).append(change)
    return list(groups.values())


def _end(joined: Mapping[str, str], top: str) -> str:
    """The last one of what `top` is joined with."""
    while top in joined:
        top = joined[top]
    return top


def _top(path: str, wholes: Collection[str]) -> str:
    """The highest directory of these that the path is in; the path if there is none."""
    return next((str(p) for p in reversed(Path(path).parents) if str(p) in wholes), path)


def _pieces(layer: Layer, group: Sequence[Change], limit: int) -> Iterator[_Piece]:
    """The hunks of a changed text, or the changes as one piece."""
    new = (change.path for change in group if change.deed is not Deed.DELETED)
    path = valid_text(next(new, group[0].path))
    effect, paths = Effect(tuple(group)), frozenset(change.path for change in group)
    title = "; ".join(describe.listing(effect, layer, _MAX_TITLES))
    texts = describe.texts(group[0], layer) if len(group) == 1 and limit > 0 else None
    if texts is not None and not linediff.differ_by_line_ends(*texts):
        before, after = texts
        hunks = linediff.hunks_of(before, after)
        if len(hunks) > 1 and sum(len(hunk.diff) for hunk in hunks) <= limit:
            for number, hunk in enumerate(hunks, 1):
                diff = valid_text(linediff.with_head([hunk.diff], path))
                part = Part(path, title, diff, f"hunk {number} of {len(hunks)}")
                yield _Piece(part, paths, before, hunk)
            return
    diff = describe.diff(effect, layer, limit) if limit > 0 else ""
    yield _Piece(Part(path, title, valid_text(diff)), paths)
