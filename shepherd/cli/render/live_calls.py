"""The live lines of running calls: the work of sub-agents, and the last output of commands."""

from collections.abc import Iterator

from rich.text import Text

from shepherd.cli.terminal.paint import Glyphs, Piece
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.events import Notice, Topic

MAX_LINE = 400
MAX_TAIL_LINES = 5


class LiveCalls:
    """Keeps the last line of each sub-agent, and the last lines of each command, by call."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._lines: dict[str, str] = {}
        self._tails: dict[str, list[str]] = {}

    def take(self, notice: Notice) -> None:
        """Keep a notice of the topic TASK or OUTPUT."""
        if notice.topic == Topic.TASK:
            self._lines[notice.id] = one_line(notice.text, MAX_LINE)
        else:
            lines = sanitize(notice.text).rstrip("\n").split("\n")
            self._tails[notice.id] = [one_line(line, MAX_LINE) for line in lines[-MAX_TAIL_LINES:]]

    def end(self, call_id: str) -> None:
        """Forget a call that has its result."""
        self._lines.pop(call_id, None)
        self._tails.pop(call_id, None)

    def clear(self) -> None:
        """Forget all calls."""
        self._lines.clear()
        self._tails.clear()

    def pieces(self) -> list[Piece]:
        """The lines, each cut to the width of the screen."""
        return [
            Piece(Text(line, style="quiet", no_wrap=True, overflow="ellipsis"))
            for line in self._texts()
        ]

    def _texts(self) -> Iterator[str]:
        for tail in self._tails.values():
            for number, line in enumerate(tail):
                yield f"  {self._glyphs.result if number == 0 else ' '} {line}"
        for line in self._lines.values():
            yield f"  {self._glyphs.dot} {line}"
