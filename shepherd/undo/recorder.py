"""Records the changes of calls in one session, and moves its files back and forth."""

import os
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from shepherd.errors import UndoError
from shepherd.tools.access import Access, AccessKind, Claim
from shepherd.tools.consent import PreparedCall
from shepherd.tools.text import pluralize
from shepherd.undo import log, points, scan
from shepherd.undo.describe import Describer
from shepherd.undo.files import KeptFiles
from shepherd.undo.store import Change, ChangeKind, Entry, FileState, Kind, UndoStore

MAX_NAMES = 20
"""The limit of paths in a sentence for the model."""

MAX_NAMED = 200
"""The limit of files that a command only mentions."""

MAX_SENTENCES = 5
"""The limit of files of which the user hears before a call."""

_READ_ONLY = """
ls cat head tail wc pwd echo printf stat du df grep egrep fgrep diff cmp basename dirname realpath
readlink whoami id uname which type true false test [ cd nl cut tr seq
"""
READ_ONLY = frozenset(_READ_ONLY.split())
"""Commands that write nothing but their output; redirections count as writes of their own."""

_VERBS = {ChangeKind.UNDO: "undid", ChangeKind.REDO: "made this change again:"}
_DECLARED = (
    *(AccessKind.READ, AccessKind.WRITE, AccessKind.NETWORK, AccessKind.ENVIRONMENT),
    *(AccessKind.MEMORY, AccessKind.PLAN, AccessKind.NONE),
)
"""Kinds of accesses that name all that they change."""


def written_paths(prepared: PreparedCall) -> list[str]:
    """The paths that a call may write, and their missing parents, which it creates."""
    writes = [access for access in prepared.accesses if access.kind is AccessKind.WRITE]
    certain = [access.target for access in writes if access.claim is Claim.EXACT]
    mentioned = [access.target for access in writes if access.claim is not Claim.EXACT]
    paths = [*certain, *mentioned[:MAX_NAMED]]
    parents = [parent for path in paths for parent in _missing_parents(path)]
    return list(dict.fromkeys([*parents, *paths]))


def changes_tree(prepared: PreparedCall) -> bool:
    """Whether a call may change files that its accesses do not name."""
    if not prepared.accesses:
        return prepared.tool.starts_programs
    return any(map(_may_write, prepared.accesses))


def _may_write(access: Access) -> bool:
    """Whether it may change files that it does not name, as most commands may."""
    if access.kind in _DECLARED or access.kind is AccessKind.REPOSITORY:  # `.git` is never kept
        return False
    if access.kind is not AccessKind.SHELL or access.claim is Claim.OPAQUE:
        return True
    try:
        words = shlex.split(access.target)
    except ValueError:
        return True
    return not words or words[0] not in READ_ONLY


def _missing_parents(path: str) -> list[str]:
    """The directories above the path that do not exist, the nearest first."""
    parents: list[str] = []
    for parent in Path(path).parents:
        if os.path.lexists(parent):
            break
        parents.append(str(parent))
    return parents


class _RunningCall(Struct, eq=False):
    """A call that has begun, with the states before it.

    `tree` is the working directory, None if it is not watched; `problem` then says why, or is "".
    """

    prepared: PreparedCall
    change: Change
    paths: dict[str, FileState]
    tree: dict[str, FileState] | None
    problem: str
    is_over: Callable[[], bool]


class Recorder:
    """The changes of one session; all calls from one thread. Raises UndoError."""

    def __init__(
        self,
        store: UndoStore,
        files: KeptFiles,
        cwd: Path,
        scanner: scan.Scanner | None,
        warn: Callable[[str], None],
    ) -> None:
        self._store = store
        self._files = files
        self._scanner = scanner
        self._warn = warn
        self._describer = Describer(files, cwd)
        self._announced = set[str]()  # the paths that the user knows to be unkept
        self._scan_problem = ""  # why the working directory is not watched any more
        self._running: dict[int, _RunningCall] = {}  # by the identity of the prepared call
        self._log = log.ChangeLog(store, files)
        self._log.load()

    def before(self, prepared: PreparedCall, at: int, is_over: Callable[[], bool]) -> None:
        """Keep what the call may change. `is_over` tells later whether it was cancelled."""
        self._settle(lambda running: running.is_over())  # cancelled calls had no `after`
        call_bytes = self._store.limits.call_bytes
        paths = self._files.states(written_paths(prepared), total_bytes=call_bytes)
        unkept = [(p, s.why) for p, s in paths.items() if s.kind is Kind.UNKEPT and s.marks]
        for sentence in self._losses(unkept):
            self._warn(sentence)
        tree, problem = self._look_through() if changes_tree(prepared) else (None, "")
        if not paths and tree is None and not problem:
            return  # it changes nothing
        entries = [Entry(path, state, state) for path, state in paths.items()]
        kind = ChangeKind.TOOL if tree is None else ChangeKind.COMMAND
        change = self._log.begin(at, kind, prepared.label, entries)
        running = _RunningCall(prepared, change, paths, tree, problem, is_over)
        self._running[id(prepared)] = running

    def unkept(self, paths: Collection[str]) -> list[str]:
        """What can't be brought back after a change of these paths; see `UndoKeeper.unkept`."""
        unkept, size = self._files.unkept(paths, self._store.limits.call_bytes)
        self._store.check_space(size)
        self._announced.difference_update(path for path, _ in unkept)  # each question has it
        return self._losses(unkept)

    def after(self, prepared: PreparedCall) -> None:
        """Record what the call has changed."""
        running = self._running.pop(id(prepared), None)
        if running is not None:
            self._record(running)

    def undo(self, count: int, at: int, *, force: bool) -> log.MoveResult:
        """Undo the last `count` changes; `at` is the number of the session's next message."""
        self._settle()
        steps = self._log.steps(ChangeKind.UNDO, count)
        first_undone = self._log.done[-len(steps)].number if steps else -1
        notes = self._log.notes_after(first_undone)
        if not steps:
            raise UndoError("There is nothing to undo.", *notes)
        moved = self._make(steps, self._log.states(steps), at, force=force)
        moved.notes = notes
        return moved

    def redo(self, count: int, at: int, *, force: bool) -> log.MoveResult:
        """Make the last `count` undone changes again."""
        self._settle()
        steps = self._log.steps(ChangeKind.REDO, count)
        if not steps:
            raise UndoError("There is nothing to redo.")
        return self._make(steps, self._log.states(steps), at, force=force)

    def move_to(self, position: int, at: int, *, force: bool) -> log.MoveResult:
        """Give all files the states that they had when message `position` was added."""
        self._settle()
        steps = self._log.steps_to(position)
        return self._make(steps, self._log.states(steps), at, force=force)

    def check_move(self, position: int) -> None:
        """Raise the UndoError of `move_to`, if any, and change nothing."""
        self._settle()
        steps = self._log.steps_to(position)
        self._check(steps, self._log.states(steps))

    def changed_files(self, position: int) -> list[str]:
        """The names of the files that changed since message `position` was added."""
        self._settle()
        steps = self._log.steps_to(position)
        return [self._describer.name(entry.path) for step in steps for entry in step.entries]

    def points(self) -> list[points.Point]:
        """The points of all sessions, the newest first."""
        return points.all_points(self._store)

    def show(self, id: str) -> str:
        """What a point changed, as one diff."""
        entries = points.entries_of(points.find_point(self._store, id), ())
        return "\n".join(
            filter(None, (self._describer.diff(e.path, e.before, e.after) for e in entries))
        )

    def restore(self, id: str, paths: Collection[Path], *, force: bool) -> log.MoveResult:
        """Give files the states that they had before a point; this is a change of this session.

        The session of the point may be in use: nothing about it is written.
        """
        point = points.find_point(self._store, id)
        entries = tuple(points.entries_of(point, paths))
        step = log.Step(ChangeKind.MOVE, f"shepherd undo restore {id}", entries)
        states = self._log.states([step])
        changes = self._store.changes(point.session)
        step = structs.replace(step, entries=tuple(points.way_back(entries, changes, states)))
        return self._make([step], states, 0, force=force)

    def diff(self) -> str:
        """The changes of the session's files since its start, as one diff."""
        self._settle()
        entries = sorted(log.net_entries(self._log.changes), key=lambda entry: entry.path)
        current = self._files.states(entry.path for entry in entries)
        diffs = (self._describer.diff(e.path, e.before, current[e.path]) for e in entries)
        return "\n".join(filter(None, diffs))

    def preface(self, at: int) -> str:
        """What the user undid or redid since the last message, for the model; "" if nothing."""
        lines: list[str] = []
        for change in self._log.changes:
            if change.at < at or change.kind not in _VERBS or not change.entries:
                continue  # the model knows of it, or it changed nothing
            files = [e.path for e in change.entries if e.before.kind is not Kind.DIRECTORY]
            more = f" and {len(files) - MAX_NAMES} more" if len(files) > MAX_NAMES else ""
            changed = ", ".join(map(self._describer.name, files[:MAX_NAMES])) + more
            lines.append(f"The user {_VERBS[change.kind]} `{change.label}`: {changed} changed.")
        return "\n".join(lines)

    def close(self) -> None:
        """Record what has ended, and close the store."""
        try:
            self._settle()
        finally:
            self._store.close()

    def _make(
        self, steps: list[log.Step], states: dict[str, FileState], at: int, *, force: bool
    ) -> log.MoveResult:
        """Make the steps, unless they would lose something; the result has names for the user."""
        if not force:
            self._check(steps, states)
        moved = self._log.make(steps, states, at)
        moved.restored = [self._describer.name(path) for path in dict.fromkeys(moved.restored)]
        moved.removed = [self._describer.name(path) for path in dict.fromkeys(moved.removed)]
        moved.failed = [(self._describer.name(path), why) for path, why in moved.failed]
        if moved.failed and not moved.labels:
            path, why = moved.failed[0]
            raise UndoError(f"Nothing was changed: {path}: {why}.")
        return moved

    def _check(self, steps: list[log.Step], states: Mapping[str, FileState]) -> None:
        """Raise UndoError, with what would be lost, if something else has changed a file."""
        conflicts = self._log.conflicts(steps, states)
        if not conflicts:
            return
        diffs = [self._describer.diff(c.path, c.current, c.target) for c in conflicts]
        first, *others = conflicts
        text = f"Nothing was changed: {self._describer.name(first.path)}: {first.why}."
        if others:
            text += f" {pluralize(len(others), 'other file')} can't be changed either."
        raise UndoError(text, *filter(None, diffs))

    def _losses(self, unkept: Sequence[tuple[str, str]]) -> list[str]:
        """Sentences about files that can't be kept, with the reasons; each file is named once."""
        new = [(path, why) for path, why in unkept if path not in self._announced]
        self._announced.update(path for path, _ in new)
        name = self._describer.name
        lines = [f"/undo could not bring back {name(path)}: {why}." for path, why in new]
        if len(new) > MAX_SENTENCES:
            more = pluralize(len(new) - MAX_SENTENCES, "more file")
            lines[MAX_SENTENCES:] = [f"/undo could not bring back {more} either."]
        return lines

    def _record(self, running: _RunningCall) -> None:
        """Write what a call has changed, and a note if that is not known in full."""
        entries = {e.path: e for e in self._tree_changes(running)}
        # paths outside of the working directory are known by the call's accesses alone
        redo_bytes = self._store.limits.redo_bytes
        for path, after in self._files.states(running.paths, total_bytes=redo_bytes).items():
            before = running.paths[path]
            entries[path] = Entry(path, before, before if before.is_still(after) else after)
        self._log.finish(running.change, entries.values())
        if running.problem:
            label = f"{running.change.label} ran; its changes can't be undone: {running.problem}"
            self._log.note(running.change.at, label)

    def _tree_changes(self, running: _RunningCall) -> list[Entry]:
        """What the command changed in the working directory; [] if that is not watched."""
        if running.tree is None or self._scanner is None:
            return []
        try:
            return self._scanner.changes(running.tree)
        except scan.TooLargeError as error:  # the command has made the directory so large
            running.problem = self._scan_problem = str(error)
            return []

    def _look_through(self) -> tuple[dict[str, FileState] | None, str]:
        """The state of the tree, or the reason why it is not known; a failure is remembered."""
        if self._scanner is None:
            return None, "commands are not watched (undo.command_mib = 0)"
        if not self._scan_problem:
            try:
                return self._scanner.before(), ""
            except scan.TooLargeError as error:
                self._scan_problem = str(error)
        return None, self._scan_problem

    def _settle(self, is_over: Callable[[_RunningCall], bool] = lambda _: True) -> None:
        """Record the calls that are over but had no `after`; between turns these are all."""
        for key, running in list(self._running.items()):
            if is_over(running):
                del self._running[key]
                self._record(running)
