"""Replacing text in a file."""

import asyncio
import os
import re
from pathlib import Path

from msgspec import Struct

from shepherd.errors import PlaceError, ToolError
from shepherd.tools.access import EDIT_FILE, WRITE_FILE, Access, AccessKind
from shepherd.tools.files import access, linediff, opening, textfile
from shepherd.tools.text import pluralize
from shepherd.tools.tool import Arguments, FileChange, Tool, ToolContext, ToolResult, Traits


class Replacement(Struct, frozen=True):
    """The new text, the number of matches, and whether they were matched ignoring whitespace."""

    text: str
    count: int
    tolerant: bool = False


def replace_text(text: str, old: str, new: str, newline: str, *, every: bool) -> Replacement:
    """`text` with `old` replaced by `new` in its only place, or in `every` place.

    Line ends of `old` and `new` follow those of the text, `newline`. Unless `every`, a count
    other than 1 means that nothing was replaced.
    """
    # models write LF even where the file has CR LF, so the second try has the file's line ends
    for needle in (old, _with_newlines(old, newline)):
        count = text.count(needle)
        if count == 0:
            continue
        # a text of several lines keeps the line ends that it was matched with
        matched_newline = "\r\n" if "\r\n" in needle else "\n" if "\n" in needle else newline
        replaced = text.replace(needle, _with_newlines(new, matched_newline))
        if every:
            return Replacement(replaced, count)
        if count == 1 and text.find(needle) != text.rfind(needle):
            count = 2  # `count` misses overlapping matches ("aa" in "aaa"): the place is ambiguous
        return Replacement(replaced if count == 1 else text, count)
    return _replace_ignoring_whitespace(text, old, _with_newlines(new, newline), every=every)


def _with_newlines(text: str, newline: str) -> str:
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", newline) if newline != "\n" else plain


def _replace_ignoring_whitespace(text: str, old: str, new: str, *, every: bool) -> Replacement:
    """The replacement where only the whitespace of `old` differs from that of the text.

    Spaces and tabs match each other, also at both ends of a line, and blank lines do not count.
    """
    lines = [line.split() for line in old.split("\n")]
    line_regexes = [r"[ \t]+".join(map(re.escape, words)) for words in lines if words]
    if not line_regexes:
        return Replacement(text, 0)  # blank lines alone would match anywhere
    pattern = re.compile(r"[ \t]*\r?\n(?:[ \t]*\r?\n)*[ \t]*".join(line_regexes))
    matches = list(pattern.finditer(text))
    if not matches or (len(matches) > 1 and not every):
        return Replacement(text, len(matches), tolerant=True)
    pieces, end = list[str](), 0
    for match in matches:
        pieces += [text[end : match.start()], _indented(text, match.start(), old, new)]
        end = match.end()
    return Replacement("".join(pieces) + text[end:], len(matches), tolerant=True)


def _indented(text: str, start: int, old: str, new: str) -> str:
    """`new`, reindented from the indentation of `old` to that of its place in the text."""
    line_start = text.rfind("\n", 0, start) + 1
    before = text[line_start:start]
    body = new.strip("\r\n")
    if before.strip():
        return body.strip()  # the place is inside a line, which has its indentation already
    first_line = old.lstrip("\r\n")
    old_indent = first_line[: len(first_line) - len(first_line.lstrip(" \t"))]
    moved = [_reindented(line, old_indent, before) for line in body.split("\n")]
    # the text has the first line's indentation before `start`
    return "\n".join(moved).removeprefix(before).rstrip()


def _reindented(line: str, old_indent: str, new_indent: str) -> str:
    """The line with another indentation; blank lines stay as they are."""
    if not line.strip():
        return line
    if line.startswith(old_indent):
        return new_indent + line[len(old_indent) :]  # what is deeper than the first line stays so
    return new_indent + line.lstrip(" \t")


class EditArguments(Arguments):
    """The text to replace, and its replacement."""

    path: str
    old_string: str
    new_string: str
    replace_all: bool = False


class _Edit(Struct, frozen=True):
    """A checked edit that has not been written; `data` is the encoded new text."""

    path: Path
    before: str
    result: Replacement
    data: bytes


class EditFile(Tool[EditArguments]):
    """Replaces one place, or with `replace_all` every place, of a text file."""

    name = EDIT_FILE
    traits = Traits("edit", "Edit")
    description = "Replace text in a file."
    arguments = EditArguments

    def accesses(self, arguments: EditArguments, context: ToolContext) -> list[Access]:
        path = str(context.resolve(arguments.path))
        return [Access(AccessKind.READ, path), Access(AccessKind.WRITE, path)]

    def preview(self, arguments: EditArguments, context: ToolContext) -> str:
        return _diff(_checked_edit(arguments, context), arguments)

    def change(self, arguments: EditArguments, context: ToolContext) -> FileChange:
        edit = _checked_edit(arguments, context)
        return FileChange(edit.path, edit.before, edit.result.text)

    async def run(self, arguments: EditArguments, context: ToolContext) -> ToolResult:
        return await asyncio.to_thread(_write_edit, arguments, context)


def _write_edit(arguments: EditArguments, context: ToolContext) -> ToolResult:
    """Edit the file; the result tells how often, and shows the change to the user."""
    edit = _checked_edit(arguments, context)
    with opening.file_errors(arguments.path):
        access.FileAccess(context).write(edit.path, edit.data)
    count = edit.result.count
    text = f"Edited {arguments.path}: {count} replacement{'s' if count > 1 else ''}"
    if edit.result.tolerant:
        text += " (matched ignoring whitespace)"
    return ToolResult(text, display=_diff(edit, arguments))


def _checked_edit(arguments: EditArguments, context: ToolContext) -> _Edit:
    """The edit of the file as it is now, not yet written; raises ToolError if it can't be made."""
    path_text, old, new = arguments.path, arguments.old_string, arguments.new_string
    path = context.resolve(path_text)
    file = textfile.load_text(access.FileAccess(context), path, path_text)
    if not old:
        raise ToolError("old_string is empty; use write_file to create a file")
    if old == new:
        raise ToolError("old_string and new_string are the same")
    result = replace_text(file.text, old, new, file.newline, every=arguments.replace_all)
    if result.count == 0:
        raise ToolError(f"old_string not found in {path_text}")
    if result.count > 1 and not arguments.replace_all:
        raise ToolError(
            f"old_string occurs {result.count} times in {path_text}; "
            "give more context or set replace_all"
        )
    try:
        data = file.encoding.encode(result.text)
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{path_text} is {file.encoding.codec}, which has no {error.object[error.start]!r}"
        ) from error
    return _Edit(path, file.text, result, data)


def _diff(edit: _Edit, arguments: EditArguments) -> str:
    return linediff.unified_diff(edit.before, edit.result.text, arguments.path)


class WriteArguments(Arguments):
    """The path and the content to write."""

    path: str
    content: str


class WriteFile(Tool[WriteArguments]):
    """Creates or replaces a file, with its parents."""

    name = WRITE_FILE
    traits = Traits("edit", "Write")
    description = "Write a whole file."
    arguments = WriteArguments

    def accesses(self, arguments: WriteArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.WRITE, str(context.resolve(arguments.path)))]

    def preview(self, arguments: WriteArguments, context: ToolContext) -> str:
        """The diff of the write; raises ToolError if the path can't be written."""
        path, files = _write_target(arguments, context), access.FileAccess(context)
        with opening.file_errors(arguments.path):
            files.check_write(path)
        return _write_diff(files, path, arguments)

    def change(self, arguments: WriteArguments, context: ToolContext) -> FileChange | None:
        """The texts before and after; None if the old file is not text."""
        path = _write_target(arguments, context)
        old = textfile.replaced_file(access.FileAccess(context), path)
        if old.note:
            return None  # the old file is no text, so there is no `before`
        return FileChange(path, old.text if old.exists else None, arguments.content)

    async def run(self, arguments: WriteArguments, context: ToolContext) -> ToolResult:
        path = _write_target(arguments, context)
        return await asyncio.to_thread(_write, access.FileAccess(context), path, arguments)


def _write_target(arguments: WriteArguments, context: ToolContext) -> Path:
    """The resolved path; raises PlaceError for one that names a directory."""
    path = context.resolve(arguments.path)
    if arguments.path.endswith("/"):  # resolving drops it, and a file `dir` would be written
        raise PlaceError(f"is a directory: {arguments.path}")
    return path


def _write_diff(files: access.FileAccess, path: Path, arguments: WriteArguments) -> str:
    """The change as a diff; if the old file is not text, a line about it comes first."""
    old = textfile.replaced_file(files, path)
    diff = linediff.unified_diff(old.text, arguments.content, arguments.path)
    return "\n".join(part for part in (old.note, diff) if part)


def _write(files: access.FileAccess, path: Path, arguments: WriteArguments) -> ToolResult:
    """Write the file; the user sees the difference from the old one."""
    data = arguments.content.encode()
    display = _write_diff(files, path, arguments)  # needs the old file, which is about to go
    with opening.file_errors(arguments.path):
        files.write(path, data)
    return ToolResult(f"Wrote {pluralize(len(data), 'byte')} to {arguments.path}", display=display)


class DeleteArguments(Arguments):
    """The file to delete."""

    path: str


class DeleteFile(Tool[DeleteArguments]):
    """Deletes one file, or a symlink but not its target."""

    name = "delete_file"
    traits = Traits("delete", "Delete")
    description = "Delete a file."
    arguments = DeleteArguments

    def accesses(self, arguments: DeleteArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.WRITE, str(_delete_target(arguments, context)))]

    def preview(self, arguments: DeleteArguments, context: ToolContext) -> str:
        """The path that goes; raises ToolError if it can't be deleted."""
        path = _delete_target(arguments, context)
        with opening.file_errors(arguments.path):
            access.FileAccess(context).check_delete(path)
        return f"delete {path}"

    async def run(self, arguments: DeleteArguments, context: ToolContext) -> ToolResult:
        """Delete the file, or a link but not its target."""
        path = _delete_target(arguments, context)
        with opening.file_errors(arguments.path):
            await asyncio.to_thread(access.FileAccess(context).delete, path)
        return ToolResult(f"Deleted {arguments.path}")


def _delete_target(arguments: DeleteArguments, context: ToolContext) -> Path:
    """The path with its parents resolved, but not its last part, which may be a link to delete."""
    head, name = os.path.split(arguments.path.rstrip("/"))
    if name in ("", ".", "..", "~"):
        raise PlaceError(f"is a directory: {arguments.path}")
    return context.resolve(head or ".") / name
