"""Moves files between their states in the log: undo, redo, and the way to a message."""

from collections.abc import Sequence
from dataclasses import dataclass

from shepherd.undo.log import ChangeLog
from shepherd.undo.parts import MoveResult
from shepherd.undo.restore import restore_order
from shepherd.undo.states import ABSENT, Entry, FileState, Kind
from shepherd.undo.store import Change, ChangeKind


@dataclass(frozen=True, slots=True)
class Step:
    """One change to make: paths with their expected state (`after`) and their target (`before`)."""

    kind: ChangeKind
    label: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that something else has changed since; `why` says what a move would lose."""

    path: str
    why: str
    current: FileState
    target: FileState


def undo_steps(log: ChangeLog, count: int) -> list[Step]:
    """The steps that undo the last `count` changes; [] if there is none."""
    changes = list(reversed(log.done[-count:])) if count > 0 else []
    return [Step(ChangeKind.UNDO, change.label, change.entries) for change in changes]


def redo_steps(log: ChangeLog, count: int) -> list[Step]:
    """The steps that make the last `count` undone changes again."""
    changes = list(reversed(log.undone[-count:])) if count > 0 else []
    return [Step(ChangeKind.REDO, change.label, change.entries) for change in changes]


def steps_to(log: ChangeLog, at: int) -> list[Step]:
    """The step to the files as they were when message `at` was added; [] without a change."""
    span = net_entries([change for change in log.changes if change.at > at])
    entries = tuple(entry for entry in span if entry.before != entry.after)
    return [Step(ChangeKind.MOVE, "the way to another message", entries)] if entries else []


def net_entries(changes: Sequence[Change]) -> list[Entry]:
    """Each path of the changes, before the first of them and after the last."""
    net: dict[str, Entry] = {}
    for change in changes:
        for entry in change.entries:
            first = net.get(entry.path, entry)
            net[entry.path] = Entry(entry.path, first.before, entry.after)
    return list(net.values())


def find_conflicts(log: ChangeLog, steps: Sequence[Step]) -> list[Conflict]:
    """The paths that the steps would overwrite although something else has changed them."""
    paths = [entry.path for step in steps for entry in step.entries]
    states = log.files.states(paths)
    conflicts: dict[str, Conflict] = {}
    for step in steps:
        for entry in step.entries:
            current, target = states[entry.path], entry.before
            why = "" if log.files.can_restore(target) else _loss(current, entry)
            if why and entry.path not in conflicts:
                conflicts[entry.path] = Conflict(entry.path, why, current, target)
            if target.kind is not Kind.UNKEPT:
                states[entry.path] = target
    return list(conflicts.values())


def make_steps(log: ChangeLog, steps: Sequence[Step], at: int) -> MoveResult:
    """Make the steps, one change each; a path that fails is reported and left.

    A step that fails as a whole is the last one.
    """
    moved = MoveResult()
    for step in steps:
        if not _make(log, step, at, moved):
            break
    return moved


def _make(log: ChangeLog, step: Step, at: int, moved: MoveResult) -> bool:
    """Make one step; False if none of its paths could be changed."""
    states = log.files.states(entry.path for entry in step.entries)
    entries = {e.path: log.entry(e.path, states[e.path], e.before) for e in step.entries}
    change = log.begin(at, step.kind, step.label, entries.values())
    done: list[Entry] = []
    for path, target in restore_order([(e.path, e.before) for e in step.entries]):
        why = "" if states[path] == target else log.files.restore(path, target)
        if why and not _is_shared_directory(states[path], target):
            moved.failed.append((path, why))
        elif not why:
            done.append(entries[path])
            _report(moved, path, states[path], target)
    if not done and step.entries:
        log.drop(change)
        return False
    log.finish(change, done)
    moved.labels.append(step.label)
    return True


def _report(moved: MoveResult, path: str, current: FileState, target: FileState) -> None:
    if current == target or Kind.DIRECTORY in (current.kind, target.kind):
        return
    (moved.removed if target == ABSENT else moved.restored).append(path)


def _loss(current: FileState, entry: Entry) -> str:
    """What a move would lose; "" if nothing."""
    expected, target = entry.after, entry.before
    both = current.kind is expected.kind is Kind.DIRECTORY
    if current == target or (both and target.kind is not Kind.FILE):
        return ""
    if current != expected:
        return "it was changed since, by something else"
    if current.kind is Kind.UNKEPT:
        return f"it can't be kept for /redo: {current.why}"
    return ""


def _is_shared_directory(current: FileState, target: FileState) -> bool:
    """Whether a directory stays because it holds other files; this is no failure."""
    return current.kind is Kind.DIRECTORY and target == ABSENT
