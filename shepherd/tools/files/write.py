"""Writing whole files."""

import asyncio
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.files.atomic import write_atomic
from shepherd.tools.files.diff import unified_diff
from shepherd.tools.files.opening import file_errors
from shepherd.tools.files.textfile import text_or_none
from shepherd.tools.paths import resolve_path
from shepherd.tools.text import counted


class WriteArguments(Arguments):
    """What to write where."""

    path: str
    content: str


class WriteFile(Tool[WriteArguments]):
    """Creates or replaces a file, with its parents."""

    name = "write_file"
    description = "Write a whole file."
    arguments = WriteArguments

    def accesses(self, arguments: WriteArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.WRITE, str(resolve_path(arguments.path, context.cwd)))]

    def preview(self, arguments: WriteArguments, context: ToolContext) -> str:
        return _change(resolve_path(arguments.path, context.cwd), arguments)

    async def run(self, arguments: WriteArguments, context: ToolContext) -> ToolResult:
        path = _target(arguments, context)
        return await asyncio.to_thread(_write, path, arguments)


def _target(arguments: WriteArguments, context: ToolContext) -> Path:
    path = resolve_path(arguments.path, context.cwd)
    if arguments.path.endswith("/") or path.is_dir():
        raise ToolError(f"is a directory: {arguments.path}")
    return path


def _change(path: Path, arguments: WriteArguments) -> str:
    return unified_diff(text_or_none(path) or "", arguments.content, arguments.path)


def _write(path: Path, arguments: WriteArguments) -> ToolResult:
    data = arguments.content.encode()
    display = _change(path, arguments)
    with file_errors(arguments.path):
        write_atomic(path, data)
    return ToolResult(f"Wrote {counted(len(data), 'byte')} to {arguments.path}", display=display)
