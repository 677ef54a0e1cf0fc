"""The changes of one session in order, and the ways back and forth between them."""

import os
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field, structs

from shepherd.undo.files import TOO_MUCH, KeptFiles, restore_order
from shepherd.undo.store import ABSENT, Change, ChangeKind, Entry, FileState, Kind, UndoStore

MAX_LISTED = 20
MANY_PATHS = 100
"""More are written to the disk all at once, which is quicker."""


class MoveResult(Struct):
    """The result of a move: the labels of the changes, and the paths by what happened to them.

    `failed` has pairs of a path and a reason. `notes` are about commands with unknown changes.
    `count` is the number of paths that have changed, directories included.
    """

    labels: list[str] = field(default_factory=list[str])
    restored: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notes: list[str] = field(default_factory=list[str])
    count: int = 0

    def lines(self, verb: str) -> list[str]:
        """The result for the user; `verb` says what was done, such as `Undone`."""
        lines = [f"{verb}: {label}" for label in self.labels]
        if self.restored:
            lines.append(f"Restored: {_listed(self.restored)}")
        if self.removed:
            lines.append(f"Removed: {_listed(self.removed)}")
        lines += [f"Not changed: {path}: {why}" for path, why in self.failed[:MAX_LISTED]]
        if len(self.failed) > MAX_LISTED:
            lines.append(f"Not changed: {len(self.failed) - MAX_LISTED} more")
        return [*lines, *self.notes[-MAX_LISTED:]]

    def to_json(self) -> dict[str, object]:
        """The result as a JSON object."""
        return {
            "changes": self.labels,
            "restored": self.restored,
            "removed": self.removed,
            "failed": [{"path": path, "reason": why} for path, why in self.failed],
            "notes": self.notes,
        }


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


class Step(Struct, frozen=True):
    """One change to make: paths with their expected state (`after`) and their target (`before`)."""

    kind: ChangeKind
    label: str
    entries: tuple[Entry, ...]


class Conflict(Struct, frozen=True):
    """A path that something else has changed since; `why` says what a move would lose."""

    path: str
    why: str
    current: FileState
    target: FileState


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
        self.changes: list[Change] = []  # all in order, also those of undo and redo
        self.done: list[Change] = []
        self.undone: list[Change] = []
        self._interrupted: dict[str, Entry] = {}  # the paths of a move that was killed halfway
        self._next_number = 0

    def load(self) -> None:
        """Read the changes; those of a killed program are completed as far as they are known."""
        for change in self._store.changes(self.files.session):
            self._next_number = change.number + 1
            if change.finished:
                self._append(change)
            elif change.kind in TOOLS:
                self._complete(change)
            else:  # the user can make the move again, which then counts from where it began
                self._interrupted.update((e.path, e) for e in change.entries)
                self.drop(change)

    def begin(self, at: int, kind: ChangeKind, label: str, entries: Iterable[Entry]) -> Change:
        """Write a change before it happens."""
        change = Change(self._next_number, at, kind, label, tuple(entries), finished=False)
        self._next_number += 1
        self._store.write(self.files.session, change)
        return change

    def finish(self, change: Change, entries: Iterable[Entry]) -> Change:
        """Write what a change did; one that neither changed a path nor undid a change is dropped.

        Calls can overlap: a change that finishes late gets a new number, so the order holds.
        """
        changed = tuple(e for e in entries if e.before != e.after)
        finished = structs.replace(change, entries=changed, finished=True)
        if changed and self.changes and self.changes[-1].number > change.number:
            self.drop(change)
            finished = structs.replace(finished, number=self._next_number)
            self._next_number += 1
        if changed or change.kind in (ChangeKind.UNDO, ChangeKind.REDO):
            self._store.write(self.files.session, finished)
            self._append(finished)
        else:
            self.drop(change)
        return finished

    def drop(self, change: Change) -> None:
        """Remove a change that did not happen."""
        self._store.drop(self.files.session, change.number)

    def note(self, at: int, label: str) -> None:
        """Write that something ran whose changes are not known."""
        change = structs.replace(self.begin(at, ChangeKind.TOOL, label, ()), finished=True)
        self._store.write(self.files.session, change)
        self._append(change)

    def notes_after(self, number: int) -> list[str]:
        """The notes since a change."""
        return [c.label for c in self.changes if c.number > number and _is_note(c)]

    def steps(self, kind: ChangeKind, count: int) -> list[Step]:
        """The steps that UNDO the last `count` changes, or REDO those undone last; [] if none."""
        changes = self.done if kind is ChangeKind.UNDO else self.undone
        last = changes[-count:] if count > 0 else []
        return [Step(kind, change.label, change.entries) for change in reversed(last)]

    def steps_to(self, at: int) -> list[Step]:
        """The step to the files as they were when message `at` was added; [] without a change."""
        later = net_entries([change for change in self.changes if change.at > at])
        entries = tuple(entry for entry in later if entry.before != entry.after)
        return [Step(ChangeKind.MOVE, "the way to another message", entries)] if entries else []

    def states(self, steps: Sequence[Step]) -> dict[str, FileState]:
        """The present states of the paths of the steps.

        They are kept as far as the store has room beside what the steps bring back.
        """
        entries = [entry for step in steps for entry in step.entries]
        targets = {entry.before.detail for entry in entries if entry.before.kind is Kind.FILE}
        total_bytes = max(0, self._store.limits.call_bytes - self._store.use(targets))
        return self.files.states((entry.path for entry in entries), total_bytes=total_bytes)

    def conflicts(self, steps: Sequence[Step], states: Mapping[str, FileState]) -> list[Conflict]:
        """The paths that the steps would overwrite although something else has changed them.

        `states` are the present ones.
        """
        states = dict(states)
        conflicts: dict[str, Conflict] = {}
        for step in steps:
            for entry in step.entries:
                current, target = states[entry.path], entry.before
                why = _loss(current, entry)
                # a state that can't be restored overwrites nothing; `make` reports it
                if why and entry.path not in conflicts and not self.files.obstacle(target):
                    conflicts[entry.path] = Conflict(entry.path, why, current, target)
                if target.kind is not Kind.UNKEPT:
                    states[entry.path] = target  # the next step finds this one's result
        return list(conflicts.values())

    def make(self, steps: Sequence[Step], states: dict[str, FileState], at: int) -> MoveResult:
        """Make the steps, one change each; a path that fails is reported and left.

        `states` are the present ones; afterwards, they are the new ones. A step of which no path
        could be changed is the last one.
        """
        moved = MoveResult()
        for step in steps:
            if not self._make_step(step, states, at, moved):
                break
        return moved

    def _make_step(
        self, step: Step, states: dict[str, FileState], at: int, moved: MoveResult
    ) -> bool:
        """Make one step, and add its paths to `moved`; False if none of them could be changed."""
        entries = {e.path: self._entry(e.path, states[e.path], e.before) for e in step.entries}
        change = self.begin(at, step.kind, step.label, entries.values())
        made: list[Entry] = []
        few = len(entries) <= MANY_PATHS
        for path, target in restore_order([(e.path, e.before) for e in step.entries]):
            current = states[path]
            why_not = "" if current == target else self.files.restore(path, target, durable=few)
            if why_not:
                # a directory that holds other files stays, which is no failure
                if current.kind is not Kind.DIRECTORY or target != ABSENT:
                    moved.failed.append((path, why_not))
                continue
            states[path] = target
            made.append(entries[path])
            moved.count += current != target
            if current == target or Kind.DIRECTORY in (current.kind, target.kind):
                continue  # the user hears of files only
            (moved.removed if target == ABSENT else moved.restored).append(path)
        if not few and any(entry.after.kind is Kind.FILE for entry in made):
            os.sync()
        if not made and step.entries:
            self.drop(change)
            return False
        self.finish(change, made)
        moved.labels.append(step.label)
        return True

    def _entry(self, path: str, current: FileState, target: FileState) -> Entry:
        """The path's part in a change to `target`, also one that a killed program had begun."""
        begun = self._interrupted.get(path)
        if begun is not None and current == target == begun.after:
            return begun  # it has the state from before the interrupted move, for the way back
        return Entry(path, current, target)

    def _append(self, change: Change) -> None:
        """Add a finished change, and move what it undid or did again to the other list."""
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
            case _:  # after a new change, what was undone before it can't come back
                self.done.append(change)
                self.undone.clear()

    def _complete(self, change: Change) -> None:
        """Finish a change whose program was killed during the call."""
        states = self.files.states(e.path for e in change.entries)
        entries = [
            structs.replace(e, after=e.before if states[e.path] == e.before else UNKNOWN)
            for e in change.entries
        ]
        self.finish(change, entries)
        if change.kind is ChangeKind.COMMAND:
            self.note(change.at, INTERRUPTED.format(label=change.label))


def net_entries(changes: Sequence[Change]) -> list[Entry]:
    """Each path of the changes, before the first of them and after the last."""
    net: dict[str, Entry] = {}
    for change in changes:
        for entry in change.entries:
            first = net.get(entry.path, entry)
            net[entry.path] = Entry(entry.path, first.before, entry.after)
    return list(net.values())


def _is_note(change: Change) -> bool:
    return change.kind in TOOLS and not change.entries


def _loss(current: FileState, entry: Entry) -> str:
    """What a move would lose; "" if nothing."""
    expected, target = entry.after, entry.before
    is_same_directory = current.kind is expected.kind is Kind.DIRECTORY
    # only the mode of a directory can differ, and its content is never removed
    if current == target or (is_same_directory and target.kind is not Kind.FILE):
        return ""
    # nobody has looked into what was too much to keep
    if current.why != TOO_MUCH and not current.is_still(expected):
        return "it was changed since, by something else"
    if current.kind is Kind.UNKEPT:
        return f"it can't be kept for /redo: {current.why}"
    return ""
