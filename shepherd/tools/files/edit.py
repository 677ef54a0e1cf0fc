"""Replacing text in a file."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.diff import unified_diff
from shepherd.tools.files.opening import file_errors
from shepherd.tools.files.replace import Replacement, replace_text
from shepherd.tools.files.textfile import load_text
from shepherd.tools.paths import resolve_path


class EditArguments(Arguments):
    """What to replace by what."""

    path: str
    old_string: str
    new_string: str
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class _Edit:
    path: Path
    before: str
    result: Replacement
    data: bytes


class EditFile(Tool[EditArguments]):
    """Replaces one place, or with `replace_all` every place, of a text file."""

    name = "edit_file"
    description = "Replace text in a file."
    arguments = EditArguments

    def accesses(self, arguments: EditArguments, context: ToolContext) -> list[Access]:
        path = str(resolve_path(arguments.path, context.cwd))
        return [Access(AccessKind.READ, path), Access(AccessKind.WRITE, path)]

    def preview(self, arguments: EditArguments, context: ToolContext) -> str:
        return _diff(_edit(arguments, context), arguments)

    async def run(self, arguments: EditArguments, context: ToolContext) -> ToolResult:
        return await asyncio.to_thread(_run, arguments, context)


def _run(arguments: EditArguments, context: ToolContext) -> ToolResult:
    edit = _edit(arguments, context)
    with file_errors(arguments.path):
        FileAccess(context).write(edit.path, edit.data)
    count = edit.result.count
    text = f"Edited {arguments.path}: {count} replacement{'s' if count > 1 else ''}"
    if edit.result.tolerant:
        text += " (matched ignoring whitespace)"
    return ToolResult(text, display=_diff(edit, arguments))


def _edit(arguments: EditArguments, context: ToolContext) -> _Edit:
    shown, old, new = arguments.path, arguments.old_string, arguments.new_string
    path = resolve_path(shown, context.cwd)
    file = load_text(FileAccess(context), path, shown)
    if not old:
        raise ToolError("old_string is empty; use write_file to create a file")
    if old == new:
        raise ToolError("old_string and new_string are the same")
    result = replace_text(file.text, old, new, file.newline, every=arguments.replace_all)
    if result.count == 0:
        raise ToolError(f"old_string not found in {shown}")
    if result.count > 1 and not arguments.replace_all:
        raise ToolError(
            f"old_string occurs {result.count} times in {shown}; "
            "give more context or set replace_all"
        )
    try:
        data = file.encoding.encode(result.text)
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{shown} is {file.encoding.codec}, which has no {error.object[error.start]!r}"
        ) from error
    return _Edit(path, file.text, result, data)


def _diff(edit: _Edit, arguments: EditArguments) -> str:
    return unified_diff(edit.before, edit.result.text, arguments.path)
