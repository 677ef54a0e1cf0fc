"""Tables of Markdown: the first rows fix the widths, so that each row is written once."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from shepherd.cli.render.inline import styled
from shepherd.cli.terminal.paint import Piece, text_cells

MEASURED_ROWS = 6
"""The rows that determine the widths of the columns."""
MAX_COLUMNS = 40
MIN_CELLS = 6
"""With less room for each column, a row is shown as lines of `header: cell`."""
GAP = 2
"""Cells between two columns."""
_BAR = re.compile(r"(?<!\\)\|")


def cell_texts(line: str) -> list[Text]:
    """The cells in a line of Markdown."""
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    sources = _BAR.split(inner)[:MAX_COLUMNS]
    return [styled(source.strip().replace("\\|", "|")) for source in sources]


class Columns(Struct, frozen=True):
    """The columns of a table; `grows` leaves room for wider cells in later rows."""

    header: Sequence[Text]
    aligns: Sequence[str]
    natural: Sequence[int]
    grows: bool
    rule: str

    def widths(self, available: int) -> list[int]:
        """The widths in cells; [] if there is too little room for columns."""
        count = len(self.natural)
        available -= GAP * (count - 1)
        spare = available - sum(self.natural)
        if spare >= 0:
            room = spare // count if self.grows else 0
            # a column may become half as wide again, and 2 cells more
            return [width + min(width // 2 + 2, room) for width in self.natural]
        if available < count * MIN_CELLS:
            return []
        return _shared(self.natural, available)


def _shared(natural: Sequence[int], available: int) -> list[int]:
    """Narrow columns keep their width; the others share the rest."""
    widths = [0] * len(natural)
    # the narrowest first: what it leaves of its share goes to the wider ones
    order = sorted(range(len(natural)), key=lambda column: natural[column])
    for position, column in enumerate(order):
        share = available // (len(order) - position)
        widths[column] = min(natural[column], share)
        available -= widths[column]
    return widths


class _Line(Struct, frozen=True):
    """A line of a table; the first one is the header, with a rule below it."""

    columns: Columns
    cells: Sequence[Text]
    is_header: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self.columns.widths(options.max_width)
        if widths:
            yield from self._in_columns(console, widths)
        elif not self.is_header:
            for name, cell in zip(self.columns.header, self.cells, strict=False):
                yield Text.assemble(Text(name.plain, "bold"), ": ", cell)
            yield Text(self.columns.rule * 3, "dim")

    def _in_columns(self, console: Console, widths: list[int]) -> Iterator[Text]:
        wrapped: list[list[Text]] = [
            list(cell.wrap(console, width, overflow="fold")) if cell.plain else []
            for cell, width in zip(self.cells, widths, strict=False)
        ]
        for lines in zip_longest(*wrapped):
            yield _joined(lines, widths, self.columns.aligns, bold=self.is_header)
        if self.is_header:
            yield Text((" " * GAP).join(self.columns.rule * width for width in widths), "dim")


def _joined(
    lines: Sequence[Text | None], widths: Sequence[int], aligns: Sequence[str], *, bold: bool
) -> Text:
    row = Text(no_wrap=True, style="bold" if bold else "")
    for line, width, align in zip(lines, widths, aligns, strict=False):
        text = line or Text()
        text.rstrip()
        spare = max(0, width - text_cells(text.plain))
        before = {"right": spare, "center": spare // 2}.get(align, 0)
        row.append(" " * before)
        row.append_text(text)
        row.append(" " * (spare - before + GAP))
    row.rstrip()
    return row


class TableStream:
    """Reads the lines of a table; its first rows are held until the widths are fixed."""

    def __init__(self, header: str, delimiter: str, rule: str) -> None:
        self._header = cell_texts(header)
        self._aligns = [_align(cell.plain) for cell in cell_texts(delimiter)]
        self._rule = rule
        self._rows: list[list[Text]] = []
        self._columns: Columns | None = None

    def feed(self, line: str) -> list[Piece]:
        """Read a row; returns the rows that can be written."""
        self._rows.append(cell_texts(line))
        is_measured = self._columns is not None or len(self._rows) >= MEASURED_ROWS
        return self._taken(grows=True) if is_measured else []

    def finish(self) -> list[Piece]:
        """The rest of the table."""
        return self._taken(grows=False)

    def _taken(self, *, grows: bool) -> list[Piece]:
        rows, pieces = self._rows, list[Piece]()
        if self._columns is None:
            self._columns = self._measured(grows=grows)
            pieces.append(Piece(_Line(self._columns, self._header, is_header=True)))
        self._rows = []
        pieces += [Piece(_Line(self._columns, row)) for row in rows]
        return pieces

    def _measured(self, *, grows: bool) -> Columns:
        count = max(len(self._header), 1)
        natural = [1] * count
        for row in (self._header, *self._rows):
            for column, cell in enumerate(row[:count]):
                natural[column] = max(natural[column], text_cells(cell.plain))
        aligns = [*self._aligns, *[""] * count][:count]
        return Columns(self._header, aligns, natural, grows, self._rule)


def _align(delimiter: str) -> str:
    if delimiter.endswith(":"):
        return "center" if delimiter.startswith(":") else "right"
    return ""
