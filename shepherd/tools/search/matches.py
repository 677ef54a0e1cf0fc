"""Collecting the matches that an engine prints."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from shepherd.errors import ToolError
from shepherd.tasks import Stopped
from shepherd.tools.base import ToolContext
from shepherd.tools.files.access import FileAccess
from shepherd.tools.search.walk import denied
from shepherd.tools.text import one_line, plain_text

_CHUNK = 1 << 20

_MAX_RETURNS = 64
MAX_MATCHES = 500
_MAX_LINE = 400
_MAX_KEPT = 4096
_MAX_RECORD = 1 << 16


class LineCursor:
    """Goes forward through a file of any size from one line to a later one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 1
        self._start = 0

    def has_line(self, number: int, start: bytes, *, cut: bool) -> bool:
        """Whether the line is `start`, or begins with it if `cut`; carriage returns at its end
        do not count. Lines are asked for in ascending order.
        """
        if not self._forward(number):
            return False
        self._file.seek(self._start)
        result = self._file.read(len(start) + (0 if cut else _MAX_RETURNS))
        if cut:
            return result == start
        line, _, _ = result.partition(b"\n")
        return line.rstrip(b"\r") == start

    def _forward(self, number: int) -> bool:
        """Move to the start of the line; False if it is behind the end or before this one."""
        self._file.seek(self._start)
        while self._number < number:
            chunk = self._file.read(_CHUNK)
            if not chunk:
                return False
            if self._number + chunk.count(b"\n") < number:
                self._number += chunk.count(b"\n")
                self._start += len(chunk)
                continue
            end = -1
            for _ in range(number - self._number):
                end = chunk.index(b"\n", end + 1)
            self._number, self._start = number, self._start + end + 1
        return self._number == number


@dataclass(frozen=True, slots=True)
class Query:
    """A regular expression, the resolved directory, and which files in it.

    `single` is the name of the one file to search; else `glob` chooses, "" for all.
    """

    pattern: str
    root: Path
    glob: str = ""
    single: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """A line as an engine printed it: the path below the root, its number, and its first bytes."""

    path: str
    number: int
    start: bytes
    cut: bool


class MatchCollector:
    """Takes `path NUL line:text` records; what the rules deny for reading is dropped.

    An engine opens files by their names, behind which another file may be put meanwhile. So what it
    prints counts only after `confirm`, which finds the same line in the file that was decided on.
    """

    def __init__(self, query: Query, context: ToolContext) -> None:
        self._query = query
        self._context = context
        self._pending = bytearray()
        self._denied: dict[str, bool] = {}
        self._matches: list[Match] = []
        self._bytes = 0
        self._full = False

    def feed(self, data: bytes) -> bool:
        """Take output; False once there is enough."""
        self._pending += data
        *records, rest = self._pending.split(b"\n")
        # of a line without end only its start is kept
        self._pending = bytearray(rest[:_MAX_RECORD])
        return all(self._take(bytes(record)) for record in records)

    def end(self) -> None:
        """Take what an engine printed without a line end."""
        if self._pending and not self._full:
            self._take(bytes(self._pending))
        self._pending.clear()

    def confirm(self, files: FileAccess, stopped: Stopped) -> None:
        """Keep the matches that stand in the very files that the call may read."""
        confirmed: list[Match] = []
        root = None if self._query.single else files.open_directory(self._query.root)
        try:
            for path, matches in groupby(self._matches, lambda match: match.path):
                if stopped():
                    break
                confirmed += self._confirmed(files, root, path, list(matches))
        finally:
            if root is not None:
                os.close(root)
        self._matches = confirmed

    def text(self, display_path: Callable[[str], str]) -> str:
        """All matches, one per line.

        `display_path` turns a path below the root into one that the model can use.
        """
        lines = [
            f"{one_line(display_path(m.path))}:{m.number}: {_line_text(m)}" for m in self._matches
        ]
        more = ["[more matches; narrow the search]"] if self._full else []
        return "\n".join(lines + more)

    def _confirmed(
        self, files: FileAccess, root: int | None, path: str, matches: list[Match]
    ) -> list[Match]:
        try:
            if root is None:
                file = files.open(self._query.root / path)
            else:
                file = files.open_below(root, self._query.root, path)
        except (OSError, ToolError):
            return []  # deleted, swapped or denied under its other name: as if it had no matches
        with file:
            cursor = LineCursor(file)
            return [m for m in matches if cursor.has_line(m.number, m.start, cut=m.cut)]

    def _take(self, record: bytes) -> bool:
        name, nul, rest = record.partition(b"\0")
        number, colon, line = rest.partition(b":")
        if not nul or not colon or not number.isdigit():
            return True
        path = name.decode("utf-8", "surrogateescape").removeprefix("./")
        if self._is_denied(path):
            return True
        if len(self._matches) >= MAX_MATCHES or self._bytes > self._context.output_bytes:
            self._full = True
            return False
        line = line.rstrip(b"\r")
        match = Match(path, int(number), line[:_MAX_KEPT], len(line) > _MAX_KEPT)
        self._matches.append(match)
        self._bytes += len(name) + len(number) + min(len(line), _MAX_LINE) + 3
        return True

    def _is_denied(self, path: str) -> bool:
        if path not in self._denied:
            self._denied[path] = denied(self._context, self._query.root / path)
        return self._denied[path]


def _line_text(match: Match) -> str:
    text = plain_text(match.start.decode("utf-8", "replace"))
    return text[:_MAX_LINE] + "…" if match.cut or len(text) > _MAX_LINE else text
