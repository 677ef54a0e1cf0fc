"""Searches the text of files."""

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from shepherd.errors import ToolError
from shepherd.own_programs import packaged_program
from shepherd.tasks import in_thread
from shepherd.tools.base import Access, AccessKind, Arguments, Tool, ToolContext, ToolResult, Traits
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import file_errors
from shepherd.tools.paths import resolve_path
from shepherd.tools.search.matches import (
    BadPatternError,
    MatchCollector,
    Query,
    search_python,
    search_ripgrep,
)
from shepherd.tools.search.walk import Ignored

if TYPE_CHECKING:  # each call imports the engines
    from shepherd.tools.search.matches import MatchCollector, Query


class GrepArguments(Arguments):
    """The pattern, the directory or file to search, and a glob of file names."""

    pattern: Annotated[str, Field(min_length=1, description="regex")]
    path: str = "."
    glob: str = ""


class Grep(Tool[GrepArguments]):
    """Finds matching lines, with ripgrep where it understands the pattern."""

    name = "grep"
    traits = Traits("search", "Search", unit="match", reads_only=True)
    description = "Search text in files."
    arguments = GrepArguments

    def __init__(self, *, use_ripgrep: bool = True) -> None:
        self._use_ripgrep = use_ripgrep

    def accesses(self, arguments: GrepArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.READ, str(resolve_path(arguments.path or ".", context.cwd)))]

    async def run(self, arguments: GrepArguments, context: ToolContext) -> ToolResult:
        query = _query(arguments, context)
        collector = MatchCollector(query, context)
        ripgrep = packaged_program("rg") if self._use_ripgrep else None
        with file_errors(arguments.path):
            await _search(ripgrep, query, context, collector)
            collector.end()
            files = FileAccess(context)
            await in_thread(lambda stopped: collector.confirm(files, stopped))
        text = collector.text(partial(_display_path, arguments, query))
        return ToolResult(text or "(no matches)")


async def _search(
    ripgrep: str | None, query: "Query", context: ToolContext, collector: "MatchCollector"
) -> None:
    try:
        if ripgrep is None or not await search_ripgrep(ripgrep, query, collector):
            await search_python(query, context, collector)
    except BadPatternError as error:
        raise ToolError(f"bad pattern: {error}") from error


def _query(arguments: GrepArguments, context: ToolContext) -> "Query":
    path = resolve_path(arguments.path or ".", context.cwd)
    if "\0" in arguments.pattern or "\n" in arguments.pattern:
        raise ToolError("bad pattern: it must be one line")
    if arguments.glob.startswith("!"):
        raise ToolError("bad pattern: glob can't start with !")
    if path.is_file():
        return Query(arguments.pattern, path.parent, single=path.name)
    if not path.is_dir():
        kind = "not a regular file" if path.exists() else "no such file"
        raise ToolError(f"{kind}: {arguments.path}")
    ignored = Ignored(path, keep=frozenset(arguments.glob.split("/")))
    return Query(arguments.pattern, path, glob=arguments.glob, ignored=ignored)


def _display_path(arguments: GrepArguments, query: "Query", path: str) -> str:
    """A path below the root, in a form that the model can pass to other tools."""
    if query.single:
        return arguments.path
    directory = os.path.normpath(arguments.path or ".")
    return path if directory == "." else f"{directory.rstrip('/')}/{path}"
