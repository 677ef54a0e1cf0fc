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
    """The cells in a line of Markdown: `a` and `b` in `| a | b |`."""
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):  # `\|` is a bar in the text
        inner = inner[:-1]
    sources = _BAR.split(inner)[:MAX_COLUMNS]
    return [styled(source.strip().replace("\\|", "|")) for source in sources]


class Columns(Struct, frozen=True):
    """The columns of a table; `rule` is the character of the line below the header."""

    header: Sequence[Text]
    aligns: Sequence[str]
    """`right`, `center` or "", by column."""
    widest: Sequence[int]
    """The cells of the widest text in each column, of the rows that were measured."""
    may_grow: bool
    """Whether to leave room for wider texts in later rows."""
    rule: str

    def widths(self, available: int) -> list[int]:
        """The widths of the columns in `available` cells; [] if there is too little room."""
        count = len(self.widest)
        available -= GAP * (count - 1)
        spare = available - sum(self.widest)
        if spare >= 0:
            growth = spare // count if self.may_grow else 0
            # a column may become half as wide again, and 2 cells more
            return [width + min(width // 2 + 2, growth) for width in self.widest]
        if available < count * MIN_CELLS:
            return []
        return _shared(self.widest, available)


def _shared(widest: Sequence[int], available: int) -> list[int]:
    """The widths if not all text fits: narrow columns keep theirs, the others share the rest."""
    widths = [0] * len(widest)
    # the narrowest first: what it leaves of its share goes to the wider ones
    order = sorted(range(len(widest)), key=lambda column: widest[column])
    for position, column in enumerate(order):
        share = available // (len(order) - position)
        widths[column] = min(widest[column], share)
        available -= widths[column]
    return widths


class _Line(Struct, frozen=True):
    """A line of a table; the first one is the header, with a rule below it."""

    columns: Columns
    cells: Sequence[Text]
    is_header: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The rows for Rich: cells side by side, or lines of `header: cell` where it is narrow."""
        widths = self.columns.widths(options.max_width)
        if widths:
            yield from self._in_columns(console, widths)
        elif not self.is_header:  # each line names its column itself
            for name, cell in zip(self.columns.header, self.cells, strict=False):
                yield Text.assemble(Text(name.plain, "bold"), ": ", cell)
            yield Text(self.columns.rule * 3, "dim")

    def _in_columns(self, console: Console, widths: list[int]) -> Iterator[Text]:
        """The row with its cells side by side, each wrapped in its column."""
        wrapped: list[list[Text]] = [
            list(cell.wrap(console, width, overflow="fold")) if cell.plain else []
            for cell, width in zip(self.cells, widths, strict=False)
        ]
        for texts in zip_longest(*wrapped):  # a row has as many lines as its longest cell
            yield self._joined(texts, widths)
        if self.is_header:
            yield Text((" " * GAP).join(self.columns.rule * width for width in widths), "dim")

    def _joined(self, texts: Sequence[Text | None], widths: Sequence[int]) -> Text:
        """One line of the row: a text for each column, None where the cell has no more lines."""
        line = Text(no_wrap=True, style="bold" if self.is_header else "")  # it is wrapped already
        for cell_text, width, align in zip(texts, widths, self.columns.aligns, strict=False):
            text = cell_text or Text()
            text.rstrip()
            spare = max(0, width - text_cells(text.plain))
            before = {"right": spare, "center": spare // 2}.get(align, 0)
            line.append(" " * before)
            line.append_text(text)
            line.append(" " * (spare - before + GAP))
        line.rstrip()
        return line


class TableStream:
    """Reads the lines of a table; its first rows are held until the widths are fixed."""

    def __init__(self, header: str, delimiter: str, rule: str) -> None:
        self._header = cell_texts(header)
        self._aligns = [_align(cell.plain) for cell in cell_texts(delimiter)]
        self._rule = rule
        self._held_rows: list[list[Text]] = []
        self._columns: Columns | None = None
        """None until the widths are fixed."""

    def feed(self, line: str) -> list[Piece]:
        """Read a row; returns the rows that can be written."""
        self._held_rows.append(cell_texts(line))
        is_measured = self._columns is not None or len(self._held_rows) >= MEASURED_ROWS
        return self._take_held(more_follows=True) if is_measured else []

    def finish(self) -> list[Piece]:
        """The rest of the table."""
        return self._take_held(more_follows=False)

    def _take_held(self, *, more_follows: bool) -> list[Piece]:
        """The held rows, the first time after the header."""
        pieces: list[Piece] = []
        if self._columns is None:
            self._columns = self._measured(may_grow=more_follows)
            pieces.append(Piece(_Line(self._columns, self._header, is_header=True)))
        pieces += [Piece(_Line(self._columns, row)) for row in self._held_rows]
        self._held_rows = []
        return pieces

    def _measured(self, *, may_grow: bool) -> Columns:
        """The columns as the header and the held rows need them."""
        count = len(self._header)
        widest = [1] * count
        for row in (self._header, *self._held_rows):
            for column, cell in enumerate(row[:count]):  # a row may have more cells than columns
                widest[column] = max(widest[column], text_cells(cell.plain))
        aligns = [*self._aligns, *[""] * count][:count]  # the delimiter row may have fewer cells
        return Columns(self._header, aligns, widest, may_grow, self._rule)


def _align(delimiter: str) -> str:
    """The alignment that a cell of the delimiter row asks for: `--:` is right, `:-:` center."""
    if delimiter.endswith(":"):
        return "center" if delimiter.startswith(":") else "right"
    return ""
