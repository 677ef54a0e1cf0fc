"""The changes of one session, in order, and which of them can be undone or redone."""

from collections.abc import Iterable
from dataclasses import replace

from shepherd.undo.files import KeptFiles
from shepherd.undo.states import Entry, FileState, Kind
from shepherd.undo.store import Change, ChangeKind, UndoStore

TOOLS = frozenset({ChangeKind.TOOL, ChangeKind.COMMAND})
INTERRUPTED = "{label} was interrupted with the program; what else it changed is not known"
UNKNOWN = FileState(Kind.UNKEPT, detail="unknown")
"""The state after a call that was killed; it is equal to no captured state."""


class ChangeLog:
    """The changes of a session; `done` and `undone` have the latest one last.

    A note is a change without paths: a command whose changes are not known.
    """

    def __init__(self, store: UndoStore, files: KeptFiles) -> None:
        self._store = store
        self.files = files
        self.changes: list[Change] = []
        self.done: list[Change] = []
        self.undone: list[Change] = []
        self._interrupted: dict[str, Entry] = {}
        self._next = 0

    def load(self) -> None:
        """Read the changes; those of a killed program are completed as far as they are known."""
        for change in self._store.changes(self.files.session):
            self._next = change.number + 1
            if change.finished:
                self._append(change)
            elif change.kind in TOOLS:
                self._complete(change)
            else:
                self._interrupted.update((e.path, e) for e in change.entries)
                self._store.drop(self.files.session, change.number)

    def begin(self, at: int, kind: ChangeKind, label: str, entries: Iterable[Entry]) -> Change:
        """Write a change before it happens."""
        change = Change(self._next, at, kind, label, tuple(entries), finished=False)
        self._next += 1
        self._store.write(self.files.session, change)
        return change

    def finish(self, change: Change, entries: Iterable[Entry]) -> Change:
        """Write what a change did; one that neither changed a path nor undid a change is dropped.

        Calls can overlap: a change that finishes late gets a new number, so the order holds.
        """
        changed = tuple(e for e in entries if e.before != e.after)
        done = replace(change, entries=changed, finished=True)
        if changed and self.changes and self.changes[-1].number > change.number:
            self.drop(change)
            done = replace(done, number=self._next)
            self._next += 1
        if changed or change.kind in (ChangeKind.UNDO, ChangeKind.REDO):
            self._store.write(self.files.session, done)
            self._append(done)
        else:
            self.drop(change)
        return done

    def drop(self, change: Change) -> None:
        """Remove a change that did not happen."""
        self._store.drop(self.files.session, change.number)

    def note(self, at: int, label: str) -> None:
        """Write that something ran whose changes are not known."""
        change = replace(self.begin(at, ChangeKind.TOOL, label, ()), finished=True)
        self._store.write(self.files.session, change)
        self._append(change)

    def notes_after(self, number: int) -> list[str]:
        """The notes since a change."""
        return [c.label for c in self.changes if c.number > number and _is_note(c)]

    def entry(self, path: str, current: FileState, target: FileState) -> Entry:
        """The path's part in a change to `target`, also one that a killed program had begun."""
        begun = self._interrupted.get(path)
        if begun is not None and current == target == begun.after:
            return begun
        return Entry(path, current, target)

    def _append(self, change: Change) -> None:
        """Add a finished change."""
        self.changes.append(change)
        if _is_note(change):
            return
        self._interrupted.clear()
        match change.kind:
            case ChangeKind.UNDO:
                if self.done:
                    self.done.pop()
                self.undone.append(change)
            case ChangeKind.REDO:
                if self.undone:
                    self.undone.pop()
                self.done.append(change)
            case _:
                self.done.append(change)
                self.undone.clear()

    def _complete(self, change: Change) -> None:
        """Finish a change whose program was killed during the call."""
        states = self.files.states(e.path for e in change.entries)
        entries = [
            replace(e, after=e.before if states[e.path] == e.before else UNKNOWN)
            for e in change.entries
        ]
        self.finish(change, entries)
        if change.kind is ChangeKind.COMMAND:
            self.note(change.at, INTERRUPTED.format(label=change.label))


def _is_note(change: Change) -> bool:
    return change.kind in TOOLS and not change.entries
