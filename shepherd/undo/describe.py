"""Describes changes of files to the user."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from shepherd.tools.files import linediff, textfile
from shepherd.tools.text import one_line, pluralize, valid_text
from shepherd.undo.files import KeptFiles
from shepherd.undo.store import FileState, Kind


class Describer(Struct, frozen=True):
    """Describes changes of kept files; paths below `cwd` are relative to it."""

    files: KeptFiles
    cwd: Path

    def name(self, path: str) -> str:
        """The path for the user, on one line."""
        place = Path(path)
        name = str(place.relative_to(self.cwd)) if place.is_relative_to(self.cwd) else path
        return one_line(valid_text(name))

    def diff(self, path: str, before: FileState, after: FileState) -> str:
        """The change of one path as a diff, or as a line if its content is not text; "" if none."""
        if before == after:
            return ""
        title, kind_change = self.name(path), _kind_change(before, after)
        first_line = f"{title}: {kind_change}" if kind_change else ""
        if Kind.DIRECTORY in (before.kind, after.kind):
            return first_line
        contents = [(state, self.files.content(state)) for state in (before, after)]
        old, new = (_text(state, data) for state, data in contents)
        if old is None or new is None:
            return f"{title}: {kind_change or 'changed'} ({_about(contents)})"
        diff = linediff.unified_diff(old, new, title)
        return "\n".join(filter(None, [first_line, diff]))


def _text(state: FileState, data: bytes | None) -> str | None:
    """The content as text; None if it is not text, or not stored."""
    if state.kind is Kind.ABSENT:
        return ""
    return None if data is None else textfile.printable(data)


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


def _about(contents: Iterable[tuple[FileState, bytes | None]]) -> str:
    """The sizes of what is not text, or the reason why one of them is not kept."""
    sizes: list[str] = []
    for state, data in contents:
        if state.kind is Kind.UNKEPT:
            return state.why or "not kept"
        if state.kind is Kind.FILE and data is None:
            return "not kept any more"
        sizes += [] if data is None else [pluralize(len(data), "byte", ",")]
    return " became ".join(sizes)
