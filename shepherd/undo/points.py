"""The points of undo of all sessions, and the way back before one of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from shepherd.errors import UndoError
from shepherd.undo.log import TOOLS, UNKNOWN
from shepherd.undo.store import Change, ChangeKind, Entry, FileState, Kind, UndoStore

SESSION_END = 6
"""How many characters of its session's id are in the id of a point."""


class Point(Struct, frozen=True):
    """A change of files that can be taken back."""

    session: str
    change: Change
    is_undone: bool = False

    @property
    def id(self) -> str:
        """The end of the session's id, and the number of the change."""
        return f"{self.session[-SESSION_END:]}-{self.change.number}"

    @property
    def state(self) -> str:
        """`undone`, or `unfinished` while the call runs and after its program was killed, or ""."""
        if self.is_undone:
            return "undone"
        return "" if self.change.finished else "unfinished"

    @property
    def deeds(self) -> dict[str, str]:
        """The files by their paths, with what was done: `made`, `changed` or `deleted`."""
        deeds: dict[str, str] = {}
        for entry in self.change.entries:
            was, is_now = (s.kind not in (Kind.ABSENT, Kind.DIRECTORY) for s in _ends(self, entry))
            if was or is_now:
                deeds[entry.path] = "made" if not was else "changed" if is_now else "deleted"
        return deeds

    def is_below(self, directory: Path) -> bool:
        """Whether it changed something below the directory."""
        return any(_is_at(entry.path, directory) for entry in self.change.entries)


def all_points(store: UndoStore) -> list[Point]:
    """The points of all sessions, the newest first; this changes nothing in the store."""
    points = [p for session in store.sessions() for p in _points(session, store.changes(session))]
    return sorted(points, key=lambda point: point.change.time, reverse=True)


def find_point(store: UndoStore, id: str) -> Point:
    """The point with this id, or whose session and number end with it; raises UndoError."""
    points = all_points(store)
    matches = [p for p in points if id and f"{p.session}-{p.change.number}".endswith(id)]
    matches = [point for point in matches if point.id == id] or matches
    if len(matches) > 1:
        raise UndoError(f"{id} is the end of {len(matches)} points; give more of it.")
    if not matches:
        raise UndoError(f"No point {id}; `shepherd undo list --all` shows all.")
    return matches[0]


def entries_of(point: Point, paths: Collection[Path]) -> list[Entry]:
    """What the point changed, or only that at the paths and below them; raises UndoError.

    The deleted directories above them belong to it.
    """
    entries = [Entry(entry.path, *_ends(point, entry)) for entry in point.change.entries]
    if not paths:
        return entries
    chosen = {e.path for e in entries if any(_is_at(e.path, path) for path in paths)}
    for path in paths:
        if not any(_is_at(name, path) for name in chosen):
            raise UndoError(f"{path}: {point.id} did not change it; `shepherd undo show` shows it.")
    above = {str(parent) for path in chosen for parent in Path(path).parents}
    removed = [e.path for e in entries if e.before.kind is Kind.DIRECTORY is not e.after.kind]
    chosen |= above.intersection(removed)
    return [entry for entry in entries if entry.path in chosen]


def way_back(
    entries: Iterable[Entry], changes: Sequence[Change], states: Mapping[str, FileState]
) -> Iterator[Entry]:
    """The entries with the states that the files should have now.

    `changes` are those of the session. A present state in `states` that they have made or kept is
    as good as the last one: nothing is lost with it.
    """
    history: dict[str, list[FileState]] = {}
    for change in changes:
        for entry in change.entries:
            history.setdefault(entry.path, []).extend((entry.before, _after(change, entry)))
    for entry in entries:
        known, present = history[entry.path], states[entry.path]
        yield Entry(entry.path, entry.before, present if present in known else known[-1])


def _is_at(path: str, top: Path) -> bool:
    """Whether a path is this one, or below it."""
    return path == str(top) or path.startswith(f"{str(top).rstrip('/')}/")


def _points(session: str, changes: Iterable[Change]) -> list[Point]:
    done, undone = list[int](), list[int]()  # the numbers of the changes, as in `ChangeLog`
    taken_back = set[int]()
    points: list[Change] = []
    for change in changes:
        if change.kind is ChangeKind.UNDO and change.finished and done:
            undone.append(done.pop())
            taken_back.add(undone[-1])
        elif change.kind is ChangeKind.REDO and change.finished and undone:
            done.append(undone.pop())
            taken_back.remove(done[-1])
        elif change.kind not in (ChangeKind.UNDO, ChangeKind.REDO) and change.entries:
            points.append(change)
            done.append(change.number)
            undone.clear()
    return [Point(session, change, change.number in taken_back) for change in points]


def _ends(point: Point, entry: Entry) -> tuple[FileState, FileState]:
    """The states of an entry before and after the point."""
    return entry.before, _after(point.change, entry)


def _after(change: Change, entry: Entry) -> FileState:
    return entry.after if change.finished or change.kind not in TOOLS else UNKNOWN
