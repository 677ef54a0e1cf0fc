"""The lines of Markdown: their kinds, what stands left of them, and blocks of code."""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from shepherd.cli.terminal.paint import INDENT, Glyphs, Ink, Piece, Row


class LineKind(StrEnum):
    """What a line begins or continues."""

    BLANK = "blank"
    TEXT = "text"
    HEADING = "heading"
    UNDERLINE = "underline"
    RULE = "rule"
    ITEM = "item"
    QUOTE = "quote"
    FENCE = "fence"
    TABLE = "table"


class Line(Struct, frozen=True):
    """A line: `indent` in cells, the `marker` of its kind, and the `content` after it.

    `offset` is the distance from the begin of the line to its content.
    """

    kind: LineKind
    indent: int
    marker: str
    content: str
    offset: int = 0


TAB = 4
_FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})(.*)")
_HEADING = re.compile(r"(#{1,6})(?:[ \t]+|$)(.*)")
_RULE = re.compile(r"([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_UNDERLINE = re.compile(r"=+[ \t]*$")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|$)")
_DELIMITER_ROW = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
# what can't become an item or a heading any more: `2024 was`, `12.5`, `#tag`
_DIGITS = re.compile(r"\d+(?:[^\d.)]|[.)](?:\S|[ \t]+\S))|\d{10}")
_HASHES = re.compile(r"#{1,6}(?:[^#\s]|[ \t]+\S)|#{7}")


def read_line(line: str) -> Line:
    """The line's kind, from its beginning."""
    expanded = line.expandtabs(TAB)
    text = expanded.lstrip(" ")
    indent = len(expanded) - len(text)
    if not text.strip():
        return Line(LineKind.BLANK, indent, "", "")
    for kind, pattern in (
        (LineKind.FENCE, _FENCE),
        (LineKind.HEADING, _HEADING),
    ):
        if match := pattern.match(text):
            return Line(kind, indent, match[1], match[2])
    if _RULE.match(text):
        return Line(LineKind.RULE, indent, "", text)
    if _UNDERLINE.match(text):
        return Line(LineKind.UNDERLINE, indent, "", text)
    if item := _ITEM.match(text):
        content = item[3] or ""
        return Line(LineKind.ITEM, indent, item[1], content, len(text) - len(content) + indent)
    if text.startswith(">"):
        return Line(LineKind.QUOTE, indent, ">", text[1:].removeprefix(" "))
    return Line(LineKind.TABLE if text.startswith("|") else LineKind.TEXT, indent, "", text)


def is_delimiter_row(line: str) -> bool:
    """Whether the line separates the header of a table from its rows."""
    return "|" in line and _DELIMITER_ROW.match(line) is not None


def closes_fence(fence: str, line: str) -> bool:
    """Whether the line ends a block of code that `fence` began."""
    mark = line.strip()
    return len(mark) >= len(fence) and set(mark) == {fence[0]}


def is_decided(beginning: str) -> bool:
    """Whether the rest of a line can't change its kind."""
    text = beginning.lstrip(" \t")
    if not text:
        return False
    match text[0]:
        case "|" | "=":
            return False
        case "#":
            return _HASHES.match(text) is not None
        case ">":
            return len(text) > 1
        case "*" | "-" | "_" | "+":
            after = text.lstrip(f"{text[0]} \t")[:1]
            return bool(after) and not (text[0] == "-" and after in "|:")
        case "`" | "~":
            run = len(text) - len(text.lstrip(text[0]))
            return run < 3 and run < len(text)
        case first if first in "0123456789":
            return _DIGITS.match(text) is not None
        case _:
            return True


MAX_DEPTH = 6
"""Deeper lists and quotes are not indented more."""


class _Item(Struct, frozen=True):
    """The columns of its sign and its content in the source, and the cells before its text."""

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
            # an item with two more blanks before it is nested, even if the text begins later
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


class _Prefixed(Struct, frozen=True):
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


MAX_CONTEXT = 40
"""The number of previous lines that determine the colours of a line."""
HIGHLIGHT_WIDTH = 2000
"""Longer lines stay plain."""


class CodeBlock:
    """The lines of a fence; `margin` stands before each of them."""

    def __init__(self, language: str, theme: str, glyphs: Glyphs, margin: str) -> None:
        self._language = language
        self._theme = theme
        self._glyphs = glyphs
        self._margin = margin
        self._lines: list[str] = []
        self._colours: _Colours | None = None

    def top(self) -> Piece:
        """The edge above the code, with its language."""
        return Piece(Text(f"{self._margin}{self._glyphs.top} {self._language}".rstrip(), "dim"))

    def bottom(self) -> Piece:
        """The edge below the code."""
        return Piece(Text(self._margin + self._glyphs.bottom, "dim"))

    def line(self, code: str) -> Piece:
        """A line with colours."""
        return Piece(Text(self._margin + INDENT) + self._highlighted(code), soft_wrap=True)

    def _highlighted(self, code: str) -> Text:
        if len(self._lines) >= MAX_CONTEXT:
            del self._lines[: MAX_CONTEXT // 2]
        self._lines.append(code)
        if not self._language or len(code) > HIGHLIGHT_WIDTH:
            return Text(code)
        if self._colours is None:
            self._colours = _Colours(self._language, self._theme)
        return self._colours.last_line(self._lines)


class _Colours:
    """The colours of a language in a theme."""

    def __init__(self, language: str, theme: str) -> None:
        syntax = Syntax("", language, theme=theme)
        self._lexer: Any = syntax.lexer
        self._theme = Syntax.get_theme(theme)
        self._styles: dict[Any, Style] = {}

    def last_line(self, lines: list[str]) -> Text:
        """The last line with colours, as the lines before it determine them."""
        result = Text(lines[-1])
        if self._lexer is None:
            return result
        source = "\n".join(lines) + "\n"
        start = len(source) - len(lines[-1]) - 1
        for index, token, value in self._lexer.get_tokens_unprocessed(source):
            end = index + len(value)
            if end > start and value.strip():
                result.stylize(self._style(token), max(0, index - start), end - start)
        return result

    def _style(self, token: Any) -> Style:
        if token not in self._styles:
            style = self._theme.get_style_for_token(token)
            plain = Style(color=style.color, bold=style.bold, italic=style.italic, dim=style.dim)
            self._styles[token] = plain
        return self._styles[token]
