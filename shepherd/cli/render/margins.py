"""What stands left of Markdown in lists and quotes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from shepherd.cli.render.markdown_lines import Line, LineKind
from shepherd.cli.terminal.paint import Ink, Piece, Row

MAX_DEPTH = 6
"""Deeper lists and quotes are not indented more."""


@dataclass(frozen=True, slots=True)
class _Item:
    sign: int
    content: int
    margin: int


class OpenItems:
    """The items of lists in which a line may stand, the outermost first."""

    def __init__(self) -> None:
        self._items: list[_Item] = []

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._items)

    @property
    def content(self) -> int:
        """The column in the source where the innermost item's text begins."""
        return self._items[-1].content if self._items else 0

    @property
    def margin(self) -> int:
        """The cells before its text on the screen."""
        return self._items[-1].margin if self._items else 0

    @property
    def indent(self) -> str:
        """The blanks before its text on the screen."""
        return " " * self.margin

    def open(self, line: Line, margin: int) -> None:
        """Add the item that a line begins."""
        if len(self._items) < MAX_DEPTH:
            self._items.append(_Item(line.indent, line.offset, margin))

    def close(self, line: Line) -> None:
        """Remove the items that a line does not belong to."""
        is_item = line.kind is LineKind.ITEM
        while self._items:
            item = self._items[-1]
            nested = min(item.content, item.sign + 2) if is_item else item.content
            if line.indent >= nested:
                return
            self._items.pop()


def quoted(ink: Iterable[Ink], edge: str) -> Iterator[Ink]:
    """The ink with an edge on its left."""
    for item in ink:
        if isinstance(item, Row):
            first, rest = (Text.assemble((edge, "dim"), t) for t in (item.first, item.rest))
            yield Row(first, rest)
        elif isinstance(item, Piece):
            yield with_margin(item.renderable, edge)
        else:
            yield item


def with_margin(renderable: RenderableType, margin: str) -> Piece:
    """A piece with the same text before each of its rows."""
    return Piece(_Prefixed(renderable, margin)) if margin else Piece(renderable)


@dataclass(frozen=True, slots=True)
class _Prefixed:
    """Rows with the same text before each of them."""

    renderable: RenderableType
    prefix: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - len(self.prefix))
        style = console.get_style("dim")
        for line in console.render_lines(
            self.renderable, options.update(width=width), pad=False, new_lines=True
        ):
            yield Segment(self.prefix, style)
            yield from line
