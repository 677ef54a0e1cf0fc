"""Collecting the matches that an engine prints."""

from collections.abc import Callable
from pathlib import Path

from shepherd.tools.base import ToolContext
from shepherd.tools.search.walk import denied
from shepherd.tools.text import one_line, plain_text

MAX_MATCHES = 500
_MAX_LINE = 400
_MAX_RECORD = 1 << 16


class MatchCollector:
    """Takes `path NUL line:text` records; what the rules deny for reading is dropped.

    `shown` gives the name of a path that is relative to `root`, as the model may use it.
    """

    def __init__(self, shown: Callable[[str], str], root: Path, context: ToolContext) -> None:
        self._shown = shown
        self._root = root
        self._context = context
        self._pending = bytearray()
        self._denied: dict[str, bool] = {}
        self._lines: list[str] = []
        self._bytes = 0
        self._full = False

    def feed(self, data: bytes) -> bool:
        """Take output; False once there is enough."""
        self._pending += data
        *records, rest = self._pending.split(b"\n")
        # of a line without end only its start is kept
        self._pending = bytearray(rest[:_MAX_RECORD])
        return all(self._take(bytes(record)) for record in records)

    def text(self) -> str:
        """All matches, one a line."""
        if self._pending and not self._full:
            self._take(bytes(self._pending))
        more = ["[more matches; narrow the search]"] if self._full else []
        return "\n".join(self._lines + more)

    def _take(self, record: bytes) -> bool:
        name, nul, rest = record.partition(b"\0")
        number, colon, line = rest.partition(b":")
        if not nul or not colon:
            return True
        path = name.decode("utf-8", "surrogateescape").removeprefix("./")
        if self._is_denied(path):
            return True
        if len(self._lines) >= MAX_MATCHES or self._bytes > self._context.output_bytes:
            self._full = True
            return False
        text = plain_text(line.rstrip(b"\r").decode("utf-8", "replace"))
        text = text[:_MAX_LINE] + "…" if len(text) > _MAX_LINE else text
        shown = f"{one_line(self._shown(path))}:{number.decode('ascii', 'replace')}: {text}"
        self._lines.append(shown)
        self._bytes += len(shown.encode("utf-8", "replace")) + 1
        return True

    def _is_denied(self, path: str) -> bool:
        if path not in self._denied:
            self._denied[path] = denied(self._context, self._root / path)
        return self._denied[path]
