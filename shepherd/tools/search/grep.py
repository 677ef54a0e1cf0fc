"""Searches the text of files."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from itertools import groupby
from typing import Annotated, BinaryIO

from msgspec import Struct
from pydantic import Field

from shepherd.errors import ToolError
from shepherd.tasks import Stopped, in_thread
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import file_errors
from shepherd.tools.paths import Origin
from shepherd.tools.search.glob import name_matcher
from shepherd.tools.search.ripgrep import Denials, Search
from shepherd.tools.text import one_line, plain_text
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult, Traits

MAX_MATCHES = 500
_MAX_LINE = 400  # characters that the model reads
_MAX_KEPT = 4096  # bytes by which a line is recognised again
_MAX_RETURNS = 64  # carriage returns at the end of a line
_MAX_RECORD = 1 << 16


_OPTIONS = "--line-number --with-filename --no-heading --crlf --encoding=none"


class GrepArguments(Arguments):
    """The pattern, the directory or file to search, and a glob of file names."""

    pattern: Annotated[str, Field(min_length=1, description="regex")]
    path: str = "."
    glob: str = ""


class Grep(Tool[GrepArguments]):
    """Finds matching lines."""

    name = "grep"
    traits = Traits("search", "Search", unit="match", reads_only=True)
    description = "Search text in files."
    arguments = GrepArguments

    def accesses(self, arguments: GrepArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.READ, str(context.resolve(arguments.path or ".")))]

    async def run(self, arguments: GrepArguments, context: ToolContext) -> ToolResult:
        """Search, and confirm the matches; in ignored files if nothing else is where it looks."""
        files = FileAccess(context)
        words = [*_OPTIONS.split(), f"--regexp={arguments.pattern}"]
        with file_errors(arguments.path), context.view.use() as origin:
            search = _search(arguments, context, files, origin)
            collector = MatchCollector(search, arguments.glob, context)
            has_ignored = await search.run(words, collector.feed, with_ignored=False)
            await in_thread(partial(collector.end, files))
            names_place = arguments.glob or search.root != context.cwd
            if has_ignored and names_place and not collector.matches:
                await search.run(words, collector.feed, with_ignored=True)
                await in_thread(partial(collector.end, files))
        text = collector.text(partial(_display_path, arguments, search))
        return ToolResult(text or "(no matches)")


def _search(
    arguments: GrepArguments, context: ToolContext, files: FileAccess, origin: Origin
) -> Search:
    """What to search where; raises ToolError for what can't be searched."""
    path = context.resolve(arguments.path or ".")
    if "\0" in arguments.pattern or "\n" in arguments.pattern:
        raise ToolError("bad pattern: it must be one line")
    if arguments.glob.startswith("!"):
        raise ToolError("bad pattern: glob can't start with !")
    kind = files.kind(path)
    if kind == stat.S_IFREG:
        return Search(path.parent, origin, single=path.name)
    if kind != stat.S_IFDIR:
        problem = "no such file" if kind is None else "not a regular file"
        raise ToolError(f"{problem}: {arguments.path}")
    return Search(path, origin, glob=arguments.glob)


def _display_path(arguments: GrepArguments, search: Search, path: str) -> str:
    """A path below the root, in a form that the model can pass to other tools."""
    if search.single:
        return arguments.path
    directory = os.path.normpath(arguments.path or ".")
    return path if directory == "." else f"{directory.rstrip('/')}/{path}"


class Match(Struct, frozen=True):
    """A line as the program printed it: its path below the root, number, and first bytes."""

    path: str
    number: int
    start: bytes
    cut: bool

    def is_at(self, line: bytes) -> bool:
        """Whether a line is the match; carriage returns at its end do not count."""
        if self.cut:
            return line.startswith(self.start)
        return line.partition(b"\n")[0].rstrip(b"\r") == self.start


class MatchCollector:
    """Takes `path NUL line:text` records, and drops files that the rules deny for reading.

    The program opens files by name, and a file may be swapped meanwhile. So matches count only
    after `end`, which finds the same line in the file that the permission check allowed.
    """

    def __init__(self, search: Search, glob: str, context: ToolContext) -> None:
        self._search = search
        # a glob of files does not concern a file that the call names
        self._matcher = name_matcher(glob) if glob and not search.single else None
        self._denials = Denials(search.root, context)
        self._max_bytes = context.output_bytes
        self._unfinished_record = bytearray()  # the end of the output so far
        self.matches: list[Match] = []
        self._result_bytes = 0  # the length of `text`, about
        self._is_full = False  # there were more matches than fit

    def feed(self, data: bytes) -> bool:
        """Take output; False once there is enough."""
        self._unfinished_record += data
        *records, last = self._unfinished_record.split(b"\n")
        # only the start of an endless line is kept
        self._unfinished_record = bytearray(last[:_MAX_RECORD])
        return all(self._take_record(bytes(record)) for record in records)

    def end(self, files: FileAccess, stopped: Stopped) -> None:
        """Keep only the matches that are in files that the call may read."""
        if self._unfinished_record and not self._is_full:  # a last line without an end
            self._take_record(bytes(self._unfinished_record))
        self._unfinished_record.clear()
        confirmed: list[Match] = []
        # of a single file, the directory is not approved
        search = self._search
        searched = nullcontext() if search.single else files.open_directory(search.root)
        with searched as root:
            for path, matches in groupby(self.matches, lambda match: match.path):
                if stopped():
                    break
                confirmed += self._confirmed(files, root, path, list(matches))
        self.matches = confirmed

    def text(self, display_path: Callable[[str], str]) -> str:
        """All matches, one per line.

        `display_path` turns a path below the root into one that the model can use.
        """
        lines = [
            f"{one_line(display_path(m.path))}:{m.number}: {_line_text(m)}" for m in self.matches
        ]
        if self._is_full:
            lines.append("[more matches; narrow the search]")
        return "\n".join(lines)

    def _confirmed(
        self, files: FileAccess, root: int | None, path: str, matches: list[Match]
    ) -> list[Match]:
        """Those of the matches in one file that stand in it now; `root` is the open directory."""
        if root is None:
            opened = files.open(self._search.root / path)
        else:
            opened = files.open_below(root, self._search.root, path)
        confirmed: list[Match] = []
        by_number = {match.number: match for match in matches}
        # deleted, swapped, or denied under another name: treat it as without matches
        with suppress(OSError, ToolError), opened as file:
            for number, start in _line_starts(file):
                match = by_number.pop(number, None)
                if match is not None and match.is_at(start):
                    confirmed.append(match)
                if not by_number:
                    break  # the rest of the file may be huge
        return confirmed

    def _take_record(self, record: bytes) -> bool:
        """Keep the match in `path NUL line:text`; False if there is no room for it."""
        name, nul, numbered_line = record.partition(b"\0")
        number, colon, line = numbered_line.partition(b":")
        if not nul or not colon or not number.isdigit():
            return True  # a message of the program, such as that a binary file matches
        path = self._search.relative(name)
        if (self._matcher and not self._matcher.fullmatch(path)) or self._denials.has(path):
            return True
        if len(self.matches) >= MAX_MATCHES or self._result_bytes > self._max_bytes:
            self._is_full = True
            return False
        line = line.rstrip(b"\r")
        match = Match(path, int(number), line[:_MAX_KEPT], cut=len(line) > _MAX_KEPT)
        self.matches.append(match)
        self._result_bytes += len(name) + len(number) + min(len(line), _MAX_LINE) + 3  # ": " and \n
        return True


def _line_starts(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Each line with its number; of a long line only the beginning, because it may have no end."""
    number, is_new_line = 1, True
    # long enough that the carriage returns after the kept part, which do not count, are read too
    while piece := file.readline(_MAX_KEPT + _MAX_RETURNS):
        if is_new_line:
            yield number, piece
        is_new_line = piece.endswith(b"\n")
        number += is_new_line


def _line_text(match: Match) -> str:
    """The line for the model, cut if it is long."""
    text = plain_text(match.start.decode("utf-8", "replace"))
    return text[:_MAX_LINE] + "…" if match.cut or len(text) > _MAX_LINE else text
