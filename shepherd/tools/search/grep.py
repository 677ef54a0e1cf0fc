"""Searches the text of files."""

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, BinaryIO

from msgspec import Struct
from msgspec.structs import replace
from pydantic import Field

from shepherd.errors import ToolError
from shepherd.own_programs import packaged_program
from shepherd.tasks import Stopped, in_thread
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import file_errors
from shepherd.tools.paths import Origin
from shepherd.tools.program import Program
from shepherd.tools.search.glob import name_matcher
from shepherd.tools.search.walk import SKIPPED, Ignored, Tree, denied
from shepherd.tools.shell.output import CappedOutput
from shepherd.tools.shell.process import run_program
from shepherd.tools.text import one_line, plain_text
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult, Traits

MAX_MATCHES = 500
_MAX_LINE = 400  # characters that the model reads
_MAX_KEPT = 4096  # bytes by which a line is recognised again
_MAX_RETURNS = 64  # carriage returns at the end of a line
_MAX_RECORD = 1 << 16


class Query(Struct, frozen=True):
    """A regular expression, the resolved directory, and the files in it to search.

    `single` is the name of the only file to search. Otherwise `glob` selects files; "" means all.
    Files that are `ignored` are left out. The directory is looked up from the `origin`.
    """

    pattern: str
    root: Path
    glob: str = ""
    single: str = ""
    ignored: Ignored | None = None
    origin: Origin = Origin()

    def program(self, argv: Sequence[str], stdin: BinaryIO | None = None) -> Program:
        """A program that searches in the directory."""
        # a directory of a layer has no path, so that the program takes the one in its environment
        environment = {**os.environ, "PWD": str(self.root)}
        return Program(argv, self.origin.place(self.root), environment, stdin)


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
        return [Access(AccessKind.READ, str(context.resolve(arguments.path or ".")))]

    async def run(self, arguments: GrepArguments, context: ToolContext) -> ToolResult:
        """Search by ripgrep, or by Python where that can't; then confirm the matches."""
        files = FileAccess(context)
        with file_errors(arguments.path), context.view.use() as origin:
            query = replace(_query(arguments, context, files), origin=origin)
            collector = MatchCollector(query, context)
            ripgrep = packaged_program("rg") if self._use_ripgrep else None
            if ripgrep is None or not await search_ripgrep(ripgrep, query, collector):
                await search_python(query, context, collector)
            collector.end()
            await in_thread(lambda stopped: collector.confirm(files, stopped))
        text = collector.text(partial(_display_path, arguments, query))
        return ToolResult(text or "(no matches)")


def _query(arguments: GrepArguments, context: ToolContext, files: FileAccess) -> Query:
    """What to search where; raises ToolError if no engine could search it."""
    path = context.resolve(arguments.path or ".")
    if "\0" in arguments.pattern or "\n" in arguments.pattern:
        raise ToolError("bad pattern: it must be one line")
    if arguments.glob.startswith("!"):
        raise ToolError("bad pattern: glob can't start with !")
    kind = files.kind(path)
    if kind == stat.S_IFREG:
        return Query(arguments.pattern, path.parent, single=path.name)
    if kind != stat.S_IFDIR:
        problem = "no such file" if kind is None else "not a regular file"
        raise ToolError(f"{problem}: {arguments.path}")
    ignored = Ignored(path, frozenset(arguments.glob.split("/")), context.view)
    return Query(arguments.pattern, path, glob=arguments.glob, ignored=ignored)


def _display_path(arguments: GrepArguments, query: Query, path: str) -> str:
    """A path below the root, in a form that the model can pass to other tools."""
    if query.single:
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
    after `confirm`, which finds the same line in the file that the permission check allowed.
    """

    def __init__(self, query: Query, context: ToolContext) -> None:
        self._query = query
        self._context = context
        self._unfinished_record = bytearray()  # the end of the output so far
        self._left_out: dict[str, bool] = {}  # whether the matches of a path are dropped
        self._matches: list[Match] = []
        self._result_bytes = 0  # the length of `text`, about
        self._is_full = False  # there were more matches than fit

    def feed(self, data: bytes) -> bool:
        """Take output; False once there is enough."""
        self._unfinished_record += data
        *records, last = self._unfinished_record.split(b"\n")
        # only the start of an endless line is kept
        self._unfinished_record = bytearray(last[:_MAX_RECORD])
        return all(self._take_record(bytes(record)) for record in records)

    def end(self) -> None:
        """Take a last record that has no line end."""
        if self._unfinished_record and not self._is_full:
            self._take_record(bytes(self._unfinished_record))
        self._unfinished_record.clear()

    def confirm(self, files: FileAccess, stopped: Stopped) -> None:
        """Keep only the matches that are in files that the call may read."""
        confirmed: list[Match] = []
        # of a single file, the directory is not approved
        searched = nullcontext() if self._query.single else files.open_directory(self._query.root)
        with searched as root:
            for path, matches in groupby(self._matches, lambda match: match.path):
                if stopped():
                    break
                confirmed += self._confirmed(files, root, path, list(matches))
        self._matches = confirmed

    def text(self, display_path: Callable[[str], str]) -> str:
        """All matches, one per line.

        `display_path` turns a path below the root into one that the model can use.
        """
        lines = [
            f"{one_line(display_path(m.path))}:{m.number}: {_line_text(m)}" for m in self._matches
        ]
        if self._is_full:
            lines.append("[more matches; narrow the search]")
        return "\n".join(lines)

    def _confirmed(
        self, files: FileAccess, root: int | None, path: str, matches: list[Match]
    ) -> list[Match]:
        """Those of the matches in one file that stand in it now; `root` is the open directory."""
        if root is None:
            opened = files.open(self._query.root / path)
        else:
            opened = files.open_below(root, self._query.root, path)
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
        path = name.decode("utf-8", "surrogateescape").removeprefix("./")
        if self._is_left_out(path):
            return True
        if len(self._matches) >= MAX_MATCHES or self._result_bytes > self._context.output_bytes:
            self._is_full = True
            return False
        line = line.rstrip(b"\r")
        match = Match(path, int(number), line[:_MAX_KEPT], cut=len(line) > _MAX_KEPT)
        self._matches.append(match)
        self._result_bytes += len(name) + len(number) + min(len(line), _MAX_LINE) + 3  # ": " and \n
        return True

    def _is_left_out(self, path: str) -> bool:
        """Whether the rules deny the file or git ignores it; ripgrep's `--glob` shows such too."""
        if path not in self._left_out:
            ignored = self._query.ignored
            self._left_out[path] = denied(self._context, self._query.root / path) or (
                ignored is not None and ignored.has(path)
            )
        return self._left_out[path]


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


_WORKER = Path(__file__).with_name("worker.py")
_BAD_PATTERN = 3
_RIPGREP = """
--no-config --hidden --no-ignore-dot --no-ignore-global --no-ignore-exclude --no-messages --null
--line-number --with-filename --no-heading
--color=never --crlf --encoding=none --sort=path
"""


async def search_ripgrep(program: str, query: Query, matches: MatchCollector) -> bool:
    """Search with ripgrep; False if it does not understand the pattern."""
    argv = [program, *_RIPGREP.split()]
    if query.ignored is None or not query.ignored.is_active:
        argv.append("--no-ignore")  # else ripgrep would not search in an ignored directory
    if query.glob:
        argv.append(f"--glob={query.glob}")
    if not query.single:  # a file in a skipped directory is searched if the call names it
        argv += [f"--glob=!{name}" for name in sorted(SKIPPED)]
    argv += ["--", query.pattern, f"./{query.single}" if query.single else "./"]
    exit_ = await run_program(query.program(argv), matches.feed, lambda _: True, _NO_TIMEOUT)
    # 1: no match; 2: it can't read the pattern
    return exit_.stopped or exit_.code in (0, 1)


async def search_python(query: Query, context: ToolContext, matches: MatchCollector) -> None:
    """Search with Python's regular expressions; raises ToolError for an invalid one."""
    files = FileAccess(context)
    paths = await in_thread(lambda stopped: _files(query, context, files, stopped))
    argv = [sys.executable, "-I", "-S", str(_WORKER)]
    errors = CappedOutput(1000, context.spill_dir)
    with tempfile.TemporaryFile() as stdin:  # the list of paths may be longer than a pipe takes
        parts = [query.pattern, *paths, ""]
        stdin.write("\0".join(parts).encode("utf-8", "surrogateescape"))
        stdin.seek(0)
        program = query.program(argv, stdin)
        exit_ = await run_program(program, matches.feed, errors.feed, _NO_TIMEOUT)
    if exit_.code == _BAD_PATTERN and not exit_.stopped:
        raise ToolError(f"bad pattern: {errors.text().strip()}")


_NO_TIMEOUT = 86_400.0  # seconds; the runner's deadline cancels the call much earlier


def _files(query: Query, context: ToolContext, files: FileAccess, stopped: Stopped) -> list[str]:
    """The files to search, as paths below the root."""
    if query.single:
        return [query.single]
    matcher = name_matcher(query.glob) if query.glob else None
    tree = Tree(query.root, context, ignored=query.ignored)
    return [entry.path for entry in tree.entries(matcher, files, stopped) if entry.is_file]
