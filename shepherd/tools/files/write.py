"""Writes and deletes whole files."""

import asyncio
import os
from pathlib import Path

from shepherd.errors import PlaceError
from shepherd.tools.base import (
    WRITE_FILE,
    Access,
    AccessKind,
    Arguments,
    FileChange,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from shepherd.tools.files.access import FileAccess, file_errors
from shepherd.tools.files.linediff import unified_diff
from shepherd.tools.files.textfile import replaced_file
from shepherd.tools.paths import resolve_path
from shepherd.tools.text import pluralize


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
        path, files = _target(arguments, context), FileAccess(context)
        with file_errors(arguments.path):
            files.check_write(path)
        return _change(files, path, arguments)

    def change(self, arguments: WriteArguments, context: ToolContext) -> FileChange | None:
        path = _target(arguments, context)
        old = replaced_file(FileAccess(context), path)
        if old.note:
            return None
        return FileChange(path, old.text if old.exists else None, arguments.content)

    async def run(self, arguments: WriteArguments, context: ToolContext) -> ToolResult:
        path = _target(arguments, context)
        return await asyncio.to_thread(_write, FileAccess(context), path, arguments)


def _target(arguments: WriteArguments, context: ToolContext) -> Path:
    path = resolve_path(arguments.path, context.cwd)
    if arguments.path.endswith("/"):
        raise PlaceError(f"is a directory: {arguments.path}")
    return path


def _change(files: FileAccess, path: Path, arguments: WriteArguments) -> str:
    """The change as a diff; if the old file is not text, a line about it comes first."""
    old = replaced_file(files, path)
    diff = unified_diff(old.text, arguments.content, arguments.path)
    return "\n".join(part for part in (old.note, diff) if part)


def _write(files: FileAccess, path: Path, arguments: WriteArguments) -> ToolResult:
    data = arguments.content.encode()
    display = _change(files, path, arguments)
    with file_errors(arguments.path):
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
        with file_errors(arguments.path):
            FileAccess(context).check_delete(path)
        return f"delete {path}"

    async def run(self, arguments: DeleteArguments, context: ToolContext) -> ToolResult:
        path = _delete_target(arguments, context)
        await asyncio.to_thread(_delete, path, arguments.path, context)
        return ToolResult(f"Deleted {arguments.path}")


def _delete_target(arguments: DeleteArguments, context: ToolContext) -> Path:
    head, name = os.path.split(arguments.path.rstrip("/"))
    if name in ("", ".", "..", "~"):
        raise PlaceError(f"is a directory: {arguments.path}")
    return resolve_path(head or ".", context.cwd) / name


def _delete(path: Path, path_text: str, context: ToolContext) -> None:
    with file_errors(path_text):
        FileAccess(context).delete(path)
