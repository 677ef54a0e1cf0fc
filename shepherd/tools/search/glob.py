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
from shepherd.tools.files.opening import directory_errors, exists_below
from shepherd.tools.search.ripgrep import Denials, Search, parents_of
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
        with (
            directory_errors(prefix or arguments.path),
            context.view.use() as origin,
            FileAccess(context).open_directory(root) as directory,
        ):
            search = Search(root, origin, named=pattern.split("/"))
            names = await _find_names(search, pattern)
            denials = Denials(root, context)
            result, more = await in_thread(partial(_readable, names, denials, directory))
        lines = [one_line(prefix + path) for path in result]
        if more:
            lines.append(f"[{more} more]")
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


async def _find_names(search: Search, pattern: str) -> list[str]:
    """The paths that match the glob: without ignored files, unless nothing else matches."""
    names = _Names(search, pattern)
    if await search.run(["--files"], names.feed, with_ignored=False) and not names.matches:
        await search.run(["--files"], names.feed, with_ignored=True)
    return names.matches


class _Names:
    """Takes the paths of files, each ended by NUL, and keeps those that match the glob.

    So it does with the directories of these files, whose paths end with a slash.
    """

    def __init__(self, search: Search, pattern: str) -> None:
        self._search = search
        self._matcher = name_matcher(pattern)
        self._only_directories = pattern.endswith("/")
        self._unfinished = b""
        self._directories: set[str] = set()
        self.matches: list[str] = []

    def feed(self, data: bytes) -> bool:
        """Take output; True, as there may always be more."""
        *names, self._unfinished = (self._unfinished + data).split(b"\0")
        for path in map(self._search.relative, names):
            for parent in parents_of(path):
                if parent not in self._directories:
                    self._directories.add(parent)
                    self._take(parent, "/")
            if not self._only_directories:
                self._take(path, "")
        return True

    def _take(self, path: str, mark: str) -> None:
        if self._matcher.fullmatch(path):
            self.matches.append(path + mark)


def _readable(
    names: list[str], denials: Denials, directory: int, stopped: Stopped
) -> tuple[list[str], int]:
    """The first paths that the rules do not deny, and how many more there are.

    ripgrep opens directories by their names, and one may be swapped for a link meanwhile. So only
    what is in the open directory counts.
    """
    allowed = [path for path in names if not stopped() and not denials.has(path.rstrip("/"))]
    existing = [path for path in allowed[:MAX_MATCHES] if exists_below(directory, path.rstrip("/"))]
    return existing, max(0, len(allowed) - MAX_MATCHES)
