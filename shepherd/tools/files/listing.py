"""Listing directories."""

import os
from pathlib import Path

from shepherd.tasks import in_thread
from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import directory_errors
from shepherd.tools.paths import resolve_path
from shepherd.tools.text import one_line

MAX_ENTRIES = 500


class ListArguments(Arguments):
    """The directory to list."""

    path: str = "."


class ListDirectory(Tool[ListArguments]):
    """The names in a directory."""

    name = "list_directory"
    description = "List a directory."
    arguments = ListArguments

    def accesses(self, arguments: ListArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.READ, str(resolve_path(arguments.path or ".", context.cwd)))]

    def preview(self, arguments: ListArguments, context: ToolContext) -> str:
        path = resolve_path(arguments.path or ".", context.cwd)
        with directory_errors(arguments.path):
            FileAccess(context).check_directory(path)
        return ""

    async def run(self, arguments: ListArguments, context: ToolContext) -> ToolResult:
        path = resolve_path(arguments.path or ".", context.cwd)
        names = await in_thread(lambda _: _names(FileAccess(context), path, arguments.path))
        lines = names[:MAX_ENTRIES]
        if len(names) > MAX_ENTRIES:
            rest = len(names) - MAX_ENTRIES
            lines.append(f"[{rest} more {'entry' if rest == 1 else 'entries'}]")
        return ToolResult("\n".join(lines) or "(empty)")


def _names(files: FileAccess, path: Path, path_text: str) -> list[str]:
    with directory_errors(path_text):
        directory = files.open_directory(path)
        try:
            with os.scandir(directory) as entries:
                result = sorted((entry.name, entry.is_dir()) for entry in entries)
        finally:
            os.close(directory)
    return [one_line(name) + ("/" if is_dir else "") for name, is_dir in result]
