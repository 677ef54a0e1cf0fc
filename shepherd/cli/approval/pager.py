"""A window on long text: wrapped inside a gutter, never cut."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate

from shepherd.cli.approval.question import Line

Row = list[tuple[str, str]]
"""Pieces of text with their styles."""
Place = tuple[int, int]
"""A line and a row in it."""


def row_text(row: Row) -> str:
    """The text of a row."""
    return "".join(text for text, _ in row)


def _gutter(line: Line, row: int, *, unicode: bool) -> str:
    """What is before row number `row` of a line: `│`, or `┊` where a line is continued."""
    if line.is_fact:
        return "  " if row == 0 else "    "
    begin, continued = ("│", "┊") if unicode else ("|", ":")
    return f"  {begin if row == 0 and line.span else continued} "


def fold(
    fragments: Iterable[tuple[str, str]], width: int, begin: Callable[[int], str] = lambda _row: ""
) -> list[Row]:
    """The fragments, which are pairs of text and style, in rows of at most `width` cells.

    `begin` returns what is before a row, by its number; it is within the width.
    """
    from shepherd.cli.terminal.paint import character_cells  # imports rich

    rows: list[Row] = [[(begin(0), "quiet")]]
    used = indent = len(begin(0))  # the cells of the last row, and those of its beginning
    for text, style in fragments:
        start = 0  # of what is not in a row yet
        for at, character in enumerate(text):
            cells = character_cells(character)
            # each row gets a character at least, however narrow the window is
            if used + cells > width and used > indent:
                rows[-1].append((text[start:at], style))
                next_begin = begin(len(rows))
                rows.append([(next_begin, "quiet")])
                start = at
                used = indent = len(next_begin)
            used += cells
        rows[-1].append((text[start:], style))
    return rows


class Pager:
    """Lines, and the visible part of them, which begins at `place`.

    Each row is after a gutter; without `unicode`, that is of ASCII.
    """

    def __init__(self, lines: Sequence[Line], *, unicode: bool) -> None:
        self._lines = lines
        # for each line, and for the end: how many lines and characters are before it
        self._lines_before = list(accumulate((line.span for line in lines), initial=0))
        self._characters_before = list(
            accumulate((len(line.text) + 1 for line in lines), initial=0)
        )
        self._unicode = unicode
        self.place: Place = (0, 0)
        self._bottom: Place = (0, 0)
        """The place after the last returned rows."""
        # the size of the window in cells, and what depends on its width
        self._width, self._height = 0, 0
        self._wrapped: dict[int, list[Row]] = {}
        """The rows of lines by their indexes, at this width."""

    @property
    def total(self) -> int:
        """The number of lines."""
        return self._lines_before[-1]

    @property
    def at_end(self) -> bool:
        """Whether the last returned rows contained the last row."""
        return self._bottom[0] >= len(self._lines)

    def height(self, width: int, limit: int) -> int:
        """The number of rows of the whole text; as that may be long, the count ends at `limit`."""
        self._resize(width, self._height)
        rows = 0
        for index in range(len(self._lines)):
            rows += len(self._rows(index))
            if rows > limit:
                break
        return rows

    def rows(self, width: int, height: int) -> list[Row]:
        """The visible rows; the last page is a full one."""
        self._resize(width, height)
        self._bottom = self.place = min(self.place, self._last_top())
        return self.next_page(width, height)

    def next_page(self, width: int, height: int) -> list[Row]:
        """The rows after the last returned ones, without overlap; height 0 means all rows."""
        self._resize(width, height)
        result: list[Row] = []
        while not self.at_end and (not height or len(result) < height):
            line, row = self._bottom
            result.append(self._rows(line)[row])
            self._bottom = self._next(self._bottom)
        return result

    def position(self) -> str:
        """`lines 1-24 of 812, 3 %`, for the last returned rows."""
        top_line, _ = self.place
        first = self._lines_before[top_line] + 1
        line, row = self._bottom  # the first row that is not visible
        last = self._lines_before[line + 1 if row else line]
        more = "…" if row else ""  # a part of the last line is below
        # the later segments of a long line have no number of their own, so `first` may be too high
        return f"lines {min(first, last)}-{last}{more} of {self.total}, {self._percent()} %"

    def _percent(self) -> int:
        """How much of the text is above the bottom, in characters."""
        line, row = self._bottom
        done = self._characters_before[line]
        if row:  # some rows of the line are above, each about as long as the others
            done += len(self._lines[line].text) * row // len(self._rows(line))
        return 100 * done // max(1, self._characters_before[-1])

    def forward(self) -> None:
        """Show the next page."""
        self.place = min(self._bottom, self._last_top())

    def back(self) -> None:
        """Show the previous page."""
        for _ in range(self._height):
            self.place = self._previous(self.place)

    def down(self) -> None:
        """Show the next row, unless the last one is visible."""
        if not self.at_end:
            self.place = min(self._next(self.place), self._last_top())

    def up(self) -> None:
        """Show the previous row."""
        self.place = self._previous(self.place)

    def begin(self) -> None:
        """Show the beginning."""
        self.place = (0, 0)

    def end(self) -> None:
        """Show the end."""
        self.place = self._last_top()

    def _resize(self, width: int, height: int) -> None:
        """Note the size of the window; at another width the line at the top stays there."""
        if width != self._width:
            self._wrapped.clear()
            line, _ = self.place
            self.place = (line, 0)
        self._width, self._height = width, height

    def _rows(self, index: int) -> list[Row]:
        """The rows of a line, wrapped when they are needed for the first time."""
        if index not in self._wrapped:
            if len(self._wrapped) > 1000:  # a long text must not be kept twice
                self._wrapped.clear()
            line = self._lines[index]
            begin = partial(_gutter, line, unicode=self._unicode)
            self._wrapped[index] = fold(line.fragments(), self._width, begin)
        return self._wrapped[index]

    def _next(self, place: Place) -> Place:
        """The next row of the line, or the first one of the line after it."""
        line, row = place
        return (line, row + 1) if row + 1 < len(self._rows(line)) else (line + 1, 0)

    def _previous(self, place: Place) -> Place:
        """The place before; the beginning has none, and stays."""
        line, row = place
        if row:
            return line, row - 1
        return (line - 1, len(self._rows(line - 1)) - 1) if line else (0, 0)

    def _last_top(self) -> Place:
        """The place from which one full page shows the end."""
        place: Place = (len(self._lines), 0)
        for _ in range(self._height):
            place = self._previous(place)
        return place
