"""Deleting files."""

import asyncio
import os
import stat
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.files.opening import file_errors, open_directory
from shepherd.tools.paths import resolve_path


class DeleteArguments(Arguments):
    """What to delete."""

    path: str


class DeleteFile(Tool[DeleteArguments]):
    """Deletes one file; of a symlink the link, not what it leads to."""

    name = "delete_file"
    description = "Delete a file."
    arguments = DeleteArguments

    def accesses(self, arguments: DeleteArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.WRITE, str(_target(arguments, context)))]

    def preview(self, arguments: DeleteArguments, context: ToolContext) -> str:
        return f"delete {_target(arguments, context)}"

    async def run(self, arguments: DeleteArguments, context: ToolContext) -> ToolResult:
        path = _target(arguments, context)
        await asyncio.to_thread(_delete, path, arguments.path)
        return ToolResult(f"Deleted {arguments.path}")


def _target(arguments: DeleteArguments, context: ToolContext) -> Path:
    head, name = os.path.split(arguments.path.rstrip("/"))
    if name in ("", ".", "..", "~"):
        raise ToolError(f"is a directory: {arguments.path}")
    return resolve_path(head or ".", context.cwd) / name


def _delete(path: Path, shown: str) -> None:
    with file_errors(shown):
        directory = open_directory(path.parent)
        try:
            status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                raise ToolError(f"is a directory: {shown}")
            os.unlink(path.name, dir_fd=directory)
        finally:
            os.close(directory)
