"""The changes of files as text for the user."""

from collections.abc import Callable, Iterable, Sequence

from shepherd.tools.files.linediff import unified_diff
from shepherd.tools.files.textfile import detect
from shepherd.tools.text import pluralize
from shepherd.undo.files import Entry, FileState, KeptFiles, Kind
from shepherd.undo.log import Conflict
from shepherd.undo.store import Change, ChangeKind

Name = Callable[[str], str]
MAX_NAMES = 20
_VERBS = {ChangeKind.UNDO: "undid", ChangeKind.REDO: "made this change again:"}


def net_diff(files: KeptFiles, entries: Iterable[Entry], name: Name) -> str:
    """The difference between the first states of the entries and the files now."""
    ordered = sorted(entries, key=lambda entry: entry.path)
    current = files.states(entry.path for entry in ordered)
    parts = (change_diff(files, e.path, e.before, current[e.path], name) for e in ordered)
    return "\n".join(part for part in parts if part)


def change_diff(
    files: KeptFiles, path: str, before: FileState, after: FileState, name: Name
) -> str:
    """The change of one path as a diff, or as a line if its content is not text; "" if none."""
    if before == after:
        return ""
    title = name(path)
    lines = [f"{title}: {text}"] if (text := _kind_change(before, after)) else []
    if Kind.DIRECTORY in (before.kind, after.kind):
        return "\n".join(lines)
    old, new = _text(files, before), _text(files, after)
    if old is None or new is None:
        lines = lines or [f"{title}: changed"]
        lines[0] += f" ({_reason(before, after)})"
        return "\n".join(lines)
    diff = unified_diff(old, new, title)
    return "\n".join([*lines, diff] if diff else lines)


def conflict_text(conflicts: Sequence[Conflict], name: Name) -> str:
    """The sentence about files that something else has changed."""
    first = conflicts[0]
    more = len(conflicts) - 1
    others = f" {pluralize(more, 'other file')} can't be changed either." if more else ""
    return f"Nothing was changed: {name(first.path)}: {first.why}.{others}"


def preface_text(changes: Sequence[Change], name: Name) -> str:
    """What the user undid and made again, for the model; "" if nothing."""
    lines: list[str] = []
    for change in changes:
        if change.kind in _VERBS and change.entries:
            paths = [name(e.path) for e in change.entries if e.before.kind is not Kind.DIRECTORY]
            more = f" and {len(paths) - MAX_NAMES} more" if len(paths) > MAX_NAMES else ""
            changed = ", ".join(paths[:MAX_NAMES]) + more
            lines.append(f"The user {_VERBS[change.kind]} `{change.label}`: {changed} changed.")
    return "\n".join(lines)


def _kind_change(before: FileState, after: FileState) -> str:
    """The change beside the content; "" if there is none."""
    if before.kind is Kind.ABSENT:
        return "new directory" if after.kind is Kind.DIRECTORY else "new"
    if after.kind is Kind.ABSENT:
        return "directory deleted" if before.kind is Kind.DIRECTORY else "deleted"
    if before.kind is not after.kind and Kind.UNKEPT not in (before.kind, after.kind):
        return f"{before.kind} became {after.kind}"
    if before.mode != after.mode:
        return f"mode {before.mode:o} became {after.mode:o}"
    return ""


def _text(files: KeptFiles, state: FileState) -> str | None:
    """The content as text; None if it is not text, or not stored."""
    if state.kind is Kind.ABSENT:
        return ""
    data = files.content(state)
    encoding = None if data is None else detect(data)
    if data is None or encoding is None:
        return None
    try:
        return encoding.decode(data).encode("utf-8", "replace").decode()
    except UnicodeDecodeError:
        return None


def _reason(before: FileState, after: FileState) -> str:
    unkept = next((s for s in (before, after) if s.kind is Kind.UNKEPT), None)
    return unkept.why or "not kept" if unkept else "not text, or not kept any more"
