"""Finds files by name."""

from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from shepherd.errors import ToolError
from shepherd.tasks import in_thread
from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import directory_errors
from shepherd.tools.paths import has_magic, resolve_path
from shepherd.tools.text import one_line

MAX_MATCHES = 500


class GlobArguments(Arguments):
    """The name pattern, and the directory to search."""

    pattern: Annotated[str, Field(min_length=1)]
    path: str = "."


class Glob(Tool[GlobArguments]):
    """Paths that match a glob."""

    name = "glob"
    description = "Find files by name."
    arguments = GlobArguments

    def accesses(self, arguments: GlobArguments, context: ToolContext) -> list[Access]:
        root, _, _ = _split(arguments, context)
        return [Access(AccessKind.READ, str(root))]

    async def run(self, arguments: GlobArguments, context: ToolContext) -> ToolResult:
        from shepherd.tools.search.names import find_names

        root, prefix, pattern = _split(arguments, context)
        files = FileAccess(context)
        with directory_errors(prefix or arguments.path):
            search = partial(find_names, root, pattern, context, files)
            result = await in_thread(search)
        lines = [one_line(prefix + path) for path in result[:MAX_MATCHES]]
        if len(result) > MAX_MATCHES:
            lines.append(f"[{len(result) - MAX_MATCHES} more]")
        return ToolResult("\n".join(lines) or "(no matches)")


def _split(arguments: GlobArguments, context: ToolContext) -> tuple[Path, str, str]:
    """The directory to search, the prefix of its paths in the result, and the glob in it."""
    pattern = arguments.pattern.removeprefix("./")
    base = resolve_path(arguments.path or ".", context.cwd)
    if not pattern.startswith(("/", "~", "../")):
        if ".." in pattern.split("/"):
            raise ToolError("bad pattern: .. is allowed at its start only")
        return base, "", pattern
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not has_magic(parts[fixed]):
        fixed += 1
    prefix, rest = "/".join(parts[:fixed]) + "/", "/".join(parts[fixed:])
    if ".." in rest.split("/") or not rest:
        raise ToolError("bad pattern: .. is allowed at its start only")
    return resolve_path(prefix, base), prefix, f"/{rest}"
