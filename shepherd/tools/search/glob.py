"""Finds files by name."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from shepherd.errors import ToolError
from shepherd.tasks import Stopped, in_thread
from shepherd.tools import access, paths
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import directory_errors
from shepherd.tools.search.walk import SKIPPED, Ignored, Tree
from shepherd.tools.text import one_line
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult, Traits

MAX_MATCHES = 500


class GlobArguments(Arguments):
    """The name pattern, and the directory to search."""

    pattern: Annotated[str, Field(min_length=1)]
    path: str = "."


class Glob(Tool[GlobArguments]):
    """Paths that match a glob."""

    name = "glob"
    traits = Traits("search", "Find", unit="file", reads_only=True)
    description = "Find files by name."
    arguments = GlobArguments

    def accesses(self, arguments: GlobArguments, context: ToolContext) -> list[access.Access]:
        root, _, _ = _split_pattern(arguments, context)
        return [access.Access(access.AccessKind.READ, str(root))]

    async def run(self, arguments: GlobArguments, context: ToolContext) -> ToolResult:
        """The paths that match, one per line, as the model wrote their beginning."""
        root, prefix, pattern = _split_pattern(arguments, context)
        files = FileAccess(context)
        with directory_errors(prefix or arguments.path):
            result = await in_thread(partial(find_names, root, pattern, context, files))
        lines = [one_line(prefix + path) for path in result[:MAX_MATCHES]]
        if len(result) > MAX_MATCHES:
            lines.append(f"[{len(result) - MAX_MATCHES} more]")
        return ToolResult("\n".join(lines) or "(no matches)")


def _split_pattern(arguments: GlobArguments, context: ToolContext) -> tuple[Path, str, str]:
    """The directory to search, the prefix of its paths in the result, and the glob in it.

    `../lib/*.py` is the glob `/*.py` in the directory `../lib`, with the prefix `../lib/`.
    """
    pattern = arguments.pattern.removeprefix("./")
    base = context.resolve(arguments.path or ".")
    parts = pattern.split("/")
    fixed = 0  # the number of parts that name the directory
    if pattern.startswith(("/", "~", "../")):
        while fixed < len(parts) - 1 and not paths.has_magic(parts[fixed]):
            fixed += 1
    if ".." in parts[fixed:]:
        raise ToolError("bad pattern: .. is allowed at its start only")
    if not any(parts[fixed:]):
        raise ToolError("bad pattern: it names no file")
    if fixed == 0:
        return base, "", pattern
    prefix = "/".join(parts[:fixed]) + "/"
    # the slash says that names further below do not match `*.py`
    return paths.resolve_path(prefix, base, context.view), prefix, "/" + "/".join(parts[fixed:])


def name_matcher(pattern: str) -> re.Pattern[str]:
    """The regular expression for relative paths; a `pattern` without a slash matches names."""
    anchored = pattern.rstrip("/").lstrip("/")
    if "/" not in pattern.rstrip("/"):
        anchored = f"**/{anchored}"
    return re.compile(paths.glob_regex(anchored), re.DOTALL)


def find_names(
    root: Path, pattern: str, context: ToolContext, files: FileAccess, stopped: Stopped
) -> list[str]:
    """The paths that match the glob: without ignored files, unless nothing else matches."""
    names = frozenset(pattern.split("/"))  # what the pattern names is neither skipped nor ignored
    ignored = Ignored(root, keep=names, view=context.view)
    result = _matches(Tree(root, context, SKIPPED - names, ignored), pattern, files, stopped)
    if result or not ignored.has_hidden_any:
        return result
    return _matches(Tree(root, context, SKIPPED - names), pattern, files, stopped)


def _matches(tree: Tree, pattern: str, files: FileAccess, stopped: Stopped) -> list[str]:
    """The matching paths in the tree; those of directories end with a slash."""
    only_directories = pattern.endswith("/")
    return [
        entry.path + ("/" if entry.is_dir else "")
        for entry in tree.entries(name_matcher(pattern), files, stopped)
        if entry.is_dir or not only_directories
    ]
