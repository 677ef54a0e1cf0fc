"""Replacing text in a file."""

import asyncio
import os
import re
from pathlib import Path

from msgspec import Struct

from shepherd.errors import PlaceError, ToolError
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.files import access, linediff, opening, textfile
from shepherd.tools.paths import resolve_path
from shepherd.tools.text import pluralize
from shepherd.tools.tool import (
    EDIT_FILE,
    WRITE_FILE,
    Arguments,
    FileChange,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)


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
    for needle in (old, _with(old, newline)):
        if count := _count(text, needle):
            # a text of several lines keeps the line ends that it was matched with
            put = _with(new, _newline_of(needle) or newline)
            if every:
                return Replacement(text.replace(needle, put), text.count(needle))
            return Replacement(text.replace(needle, put) if count == 1 else text, count)
    return _tolerant(text, old, _with(new, newline), every=every)


def _with(text: str, newline: str) -> str:
    """The text with these line ends."""
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", newline) if newline != "\n" else plain


def _count(text: str, needle: str) -> int:
    """The number of matches; overlapping ones count as two, because the target is ambiguous."""
    count = text.count(needle)
    return 2 if count == 1 and text.find(needle) != text.rfind(needle) else count


def _newline_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n" if "\n" in text else ""


def _tolerant(text: str, old: str, new: str, *, every: bool) -> Replacement:
    """The replacement where only the whitespace of `old` differs from that of the text."""
    lines = [line.split() for line in old.split("\n")]
    regexes = [r"[ \t]+".join(map(re.escape, words)) for words in lines if words]
    if not regexes:
        return Replacement(text, 0)
    pattern = re.compile(r"[ \t]*\r?\n(?:[ \t]*\r?\n)*[ \t]*".join(regexes))
    result = list(pattern.finditer(text))
    if not result or (len(result) > 1 and not every):
        return Replacement(text, len(result), tolerant=True)
    pieces, end = list[str](), 0
    for match in result:
        pieces += [text[end : match.start()], _indented(text, match.start(), old, new)]
        end = match.end()
    return Replacement("".join(pieces) + text[end:], len(result), tolerant=True)


def _indented(text: str, start: int, old: str, new: str) -> str:
    """`new`, reindented from the indentation of `old` to that of its place in the text."""
    line_start = text.rfind("\n", 0, start) + 1
    before = text[line_start:start]
    body = new.strip("\r\n")
    if before.strip():
        return body.strip()
    old_indent = _indentation(old.lstrip("\r\n"))
    lines = body.split("\n")
    moved = [_move(line, old_indent, before) for line in lines]
    return "\n".join(moved).removeprefix(before).rstrip()


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _move(line: str, old_indent: str, new_indent: str) -> str:
    """The line with another indentation; blank lines stay as they are."""
    if not line.strip():
        return line
    if line.startswith(old_indent):
        return new_indent + line[len(old_indent) :]
    return new_indent + line.lstrip(" \t")


class EditArguments(Arguments):
    """The text to replace, and its replacement."""

    path: str
    old_string: str
    new_string: str
    replace_all: bool = False


class _Edit(Struct, frozen=True):
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
        path = str(resolve_path(arguments.path, context.cwd))
        return [Access(AccessKind.READ, path), Access(AccessKind.WRITE, path)]

    def preview(self, arguments: EditArguments, context: ToolContext) -> str:
        return _diff(_edit(arguments, context), arguments)

    def change(self, arguments: EditArguments, context: ToolContext) -> FileChange:
        edit = _edit(arguments, context)
        return FileChange(edit.path, edit.before, edit.result.text)

    async def run(self, arguments: EditArguments, context: ToolContext) -> ToolResult:
        return await asyncio.to_thread(_run, arguments, context)


def _run(arguments: EditArguments, context: ToolContext) -> ToolResult:
    edit = _edit(arguments, context)
    with opening.file_errors(arguments.path):
        access.FileAccess(context).write(edit.path, edit.data)
    count = edit.result.count
    text = f"Edited {arguments.path}: {count} replacement{'s' if count > 1 else ''}"
    if edit.result.tolerant:
        text += " (matched ignoring whitespace)"
    return ToolResult(text, display=_diff(edit, arguments))


def _edit(arguments: EditArguments, context: ToolContext) -> _Edit:
    path_text, old, new = arguments.path, arguments.old_string, arguments.new_string
    path = resolve_path(path_text, context.cwd)
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
        return [Access(AccessKind.WRITE, str(resolve_path(arguments.path, context.cwd)))]

    def preview(self, arguments: WriteArguments, context: ToolContext) -> str:
        path, files = _target(arguments, context), access.FileAccess(context)
        with opening.file_errors(arguments.path):
            files.check_write(path)
        return _change(files, path, arguments)

    def change(self, arguments: WriteArguments, context: ToolContext) -> FileChange | None:
        path = _target(arguments, context)
        old = textfile.replaced_file(access.FileAccess(context), path)
        if old.note:
            return None
        return FileChange(path, old.text if old.exists else None, arguments.content)

    async def run(self, arguments: WriteArguments, context: ToolContext) -> ToolResult:
        path = _target(arguments, context)
        return await asyncio.to_thread(_write, access.FileAccess(context), path, arguments)


def _target(arguments: WriteArguments, context: ToolContext) -> Path:
    path = resolve_path(arguments.path, context.cwd)
    if arguments.path.endswith("/"):
        raise PlaceError(f"is a directory: {arguments.path}")
    return path


def _change(files: access.FileAccess, path: Path, arguments: WriteArguments) -> str:
    """The change as a diff; if the old file is not text, a line about it comes first."""
    old = textfile.replaced_file(files, path)
    diff = linediff.unified_diff(old.text, arguments.content, arguments.path)
    return "\n".join(part for part in (old.note, diff) if part)


def _write(files: access.FileAccess, path: Path, arguments: WriteArguments) -> ToolResult:
    data = arguments.content.encode()
    display = _change(files, path, arguments)
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
        path = _delete_target(arguments, context)
        with opening.file_errors(arguments.path):
            access.FileAccess(context).check_delete(path)
        return f"delete {path}"

    async def run(self, arguments: DeleteArguments, context: ToolContext) -> ToolResult:
        path = _delete_target(arguments, context)
        with opening.file_errors(arguments.path):
            await asyncio.to_thread(access.FileAccess(context).delete, path)
        return ToolResult(f"Deleted {arguments.path}")


def _delete_target(arguments: DeleteArguments, context: ToolContext) -> Path:
    head, name = os.path.split(arguments.path.rstrip("/"))
    if name in ("", ".", "..", "~"):
        raise PlaceError(f"is a directory: {arguments.path}")
    return resolve_path(head or ".", context.cwd) / name
