"""Deleting files."""

import asyncio
import os
from pathlib import Path

from shepherd.errors import PlaceError
from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import file_errors
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
        path = _target(arguments, context)
        with file_errors(arguments.path):
            FileAccess(context).check_delete(path)
        return f"delete {path}"

    async def run(self, arguments: DeleteArguments, context: ToolContext) -> ToolResult:
        path = _target(arguments, context)
        await asyncio.to_thread(_delete, path, arguments.path, context)
        return ToolResult(f"Deleted {arguments.path}")


def _target(arguments: DeleteArguments, context: ToolContext) -> Path:
    head, name = os.path.split(arguments.path.rstrip("/"))
    if name in ("", ".", "..", "~"):
        raise PlaceError(f"is a directory: {arguments.path}")
    return resolve_path(head or ".", context.cwd) / name


def _delete(path: Path, shown: str, context: ToolContext) -> None:
    with file_errors(shown):
        FileAccess(context).delete(path)
