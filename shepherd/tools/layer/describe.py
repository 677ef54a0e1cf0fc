"""Describes an effect: for the question to the user, and for the model."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from shepherd.tools.files import linediff, opening, textfile
from shepherd.tools.layer import git
from shepherd.tools.layer.change import Change, Deed, Sort
from shepherd.tools.layer.effect import Effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.text import one_line, pluralize, valid_text

_MAX_TEXT = 1 << 20
"""The size of the largest file whose lines are compared."""
_COMPARED_PER_BYTE = 64
"""So many bytes that are compared count like one of a diff."""
_MAX_NEW_NAMES = 8
"""New directories with more files are one line of a listing."""


def summary(effect: Effect) -> str:
    """Such as `changed 2 files, made 1, deleted 1 link`; "" for an empty effect.

    Directories count only where nothing else of their verb does, and what is in git's data never.
    """
    parts: list[str] = []
    names_files = False
    for verb, changes in _groups(effect).items():
        numbers = {sort: sum(c.sort is sort for c in changes) for sort in Sort}
        if numbers[Sort.FILE] or numbers[Sort.LINK]:
            numbers[Sort.DIRECTORY] = 0
        counts = [pluralize(number, sort) for sort, number in numbers.items() if number]
        if numbers[Sort.FILE] and names_files:
            counts[0] = str(numbers[Sort.FILE])
        names_files = names_files or bool(numbers[Sort.FILE])
        parts.append(f"{verb} {' and '.join(counts)}")
    return ", ".join(parts)


def listing(effect: Effect, layer: Layer, limit: int = 20) -> list[str]:
    """A line for each change, at most `limit`; then one that counts the others.

    A directory that was deleted or moved is one line, and so is a new one with many files, or a
    repository.
    """
    lines = [line for verb, changes in _groups(effect).items() for line in _lines(verb, changes)]
    if in_git := [change for change in effect.changes if git.is_of_git(change.path)]:
        lines.insert(0, git.words(in_git, layer))
    more = len(lines) - limit
    return lines if more <= 0 else [*lines[:limit], f"and {more} more"]


def diff(effect: Effect, layer: Layer, limit: int) -> str:
    """The changes of files as a unified diff of about `limit` bytes, before they are committed.

    What is no text is one line with its sizes. The last line says how much is left out.
    """
    texts: list[str] = []
    room = limit
    changes = chain.from_iterable(_groups(effect).values())
    files = [change for change in changes if change.sort is not Sort.DIRECTORY]
    for number, change in enumerate(files, 1):
        text = _diff(change, layer)
        size = len(text.encode()) + 1
        if size > room:
            kept = text.encode()[:room].decode("utf-8", "ignore").rpartition("\n")[0]
            lines = len(text.splitlines()) - len(kept.splitlines())
            others = pluralize(len(files) - number, "other change")
            return "\n".join([*texts, kept, f"[{pluralize(lines, 'line')}, {others} left out]"])
        texts.append(text)
        room = max(0, room - size - effort(change))
    return "\n".join(texts)


def _groups(effect: Effect) -> dict[str, list[Change]]:
    """The changes by their verbs, without empty groups; what replaces most comes first.

    Those in the repository are told in other words.
    """
    usual = [change for change in effect.changes if not git.is_of_git(change.path)]
    deleted = {c.path for c in usual if c.deed is Deed.DELETED}
    renamed = [c for c in usual if c.moved_from in deleted]
    origins = {c.moved_from for c in renamed}
    rest = [c for c in usual if c.deed is not Deed.DELETED or c.path not in origins]
    groups = {
        "changed": [c for c in rest if c.deed is Deed.CHANGED],
        "made": [
            replace(c, moved_from="")  # what it was moved from stays
            for c in rest
            if c.deed is Deed.MADE and c.moved_from not in deleted
        ],
        "renamed": renamed,
        "deleted": [c for c in rest if c.deed is Deed.DELETED],
        "changed the mode of": [c for c in rest if c.deed is Deed.MODE],
    }
    return {verb: changes for verb, changes in groups.items() if changes}


def _lines(verb: str, changes: Sequence[Change]) -> Iterator[str]:
    """The lines of a listing for the changes of one verb."""
    totals = _totals(changes)
    top = ""
    for change in changes:
        if top and change.path.startswith(f"{top}/"):
            continue
        title, (files, size) = f"{verb} {_named(change)}", totals.get(change.path, (0, 0))
        is_whole = verb in ("deleted", "renamed") or files > _MAX_NEW_NAMES
        if change.deed is Deed.MODE:
            yield f"{title} to {change.mode:o}"
        elif change.sort is Sort.LINK:
            yield f"{title} (link to {name(change.target)})"
        elif change.sort is Sort.FILE:
            yield f"{title} ({pluralize(change.size, 'byte', ',')})"
        elif files and is_whole:
            top = change.path
            yield f"{title} ({pluralize(files, 'file', ',')}, {pluralize(size, 'byte', ',')})"
        else:
            yield title


def _totals(changes: Sequence[Change]) -> dict[str, tuple[int, int]]:
    """The number and the size of all files below each directory among the changes."""
    totals = {c.path: (0, 0) for c in changes if c.sort is Sort.DIRECTORY}
    for change in reversed(changes) if totals else ():  # what is in a directory goes before it
        files, size = totals.get(change.path, (1, change.size))
        above = change.path.rpartition("/")[0]
        while above and above not in totals:
            above = above.rpartition("/")[0]
        if above:
            other_files, other_size = totals[above]
            totals[above] = other_files + files, other_size + size
    return totals


def _named(change: Change) -> str:
    slash = "/" if change.sort is Sort.DIRECTORY else ""
    names = [f"{name(path)}{slash}" for path in (change.moved_from, change.path) if path]
    return " to ".join(names)


def effort(change: Change) -> int:
    """For how many bytes of a diff the comparison of a file counts: it takes time, too."""
    old = change.before[2] if change.before and change.sort is Sort.FILE else 0
    return sum(size for size in (old, change.size) if size <= _MAX_TEXT) // _COMPARED_PER_BYTE


def _diff(change: Change, layer: Layer) -> str:
    """The change of a file or link as a diff, or as one line."""
    title = name(change.path)
    if change.moved_from:
        return f"{name(change.moved_from)} renamed to {title}"
    if change.deed is Deed.MODE:
        return f"{title}: mode {change.mode:o}"
    if change.sort is Sort.LINK:
        return f"{title}: {change.deed} (link to {name(change.target)})"
    old = "" if change.deed is Deed.MADE else _text(layer.root / change.path)
    new = "" if change.deed is Deed.DELETED else _text(layer.upper / change.path)
    if old is not None and new is not None and old != new:
        return linediff.unified_diff(old, new, title)
    size = pluralize(change.size, "byte", ",")
    if change.deed is Deed.CHANGED and change.before:
        size = f"{pluralize(change.before[2], 'byte', ',')} became {change.size:,}"
    return f"{title}: {change.deed} ({size})"


def texts(change: Change, layer: Layer) -> tuple[str, str] | None:
    """What a file was and is, if it was changed, and both are text in UTF-8."""
    if change.deed is not Deed.CHANGED or change.sort is not Sort.FILE:
        return None
    old, new = _data(layer.root / change.path), _data(layer.upper / change.path)
    if old is None or new is None or None in (textfile.printable(old), textfile.printable(new)):
        return None
    try:
        return old.decode(), new.decode()
    except UnicodeDecodeError:
        return None


def _text(path: Path) -> str | None:
    """The text of a file; None if it is not text, too large or unreadable."""
    data = _data(path)
    return None if data is None else textfile.printable(data)


def _data(path: Path) -> bytes | None:
    """The content of a file; None if it is too large or unreadable."""
    try:
        with os.fdopen(opening.open_regular(path), "rb") as file:
            data = file.read(_MAX_TEXT + 1)
    except OSError:  # it was a link before, or something else has replaced it
        return None
    return data if len(data) <= _MAX_TEXT else None


def name(path: str) -> str:
    """A path of an effect on one line, as valid text."""
    return one_line(valid_text(path))
