"""The lines of Markdown: their kinds, what stands left of them, and blocks of code."""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cached_property
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
    """A line: `indent` in cells, and its `content` after the `marker` of a fence, heading or item.

    `content_column` is where its content begins in an item.
    """

    kind: LineKind
    indent: int
    content: str = ""
    marker: str = ""
    content_column: int = 0


TAB = 4
_FENCE = re.compile(r"(?P<marker>`{3,}(?=[^`]*$)|~{3,})(?P<content>.*)")
_HEADING = re.compile(r"(?P<marker>#{1,6})(?:[ \t]+|$)(?P<content>.*)")
_RULE = re.compile(r"([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_UNDERLINE = re.compile(r"=+[ \t]*$")
_ITEM = re.compile(r"(?P<marker>[-*+]|\d{1,9}[.)])(?:[ \t]+(?P<content>.*)|$)")
_DELIMITER_ROW = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
# what can't become an item or a heading any more: `2024 was`, `12.5`, `#tag`
_DIGITS = re.compile(r"\d+(?:[^\d.)]|[.)](?:\S|[ \t]+\S))|\d{10}")
_HASHES = re.compile(r"#{1,6}(?:[^#\s]|[ \t]+\S)|#{7}")


def read_line(line: str) -> Line:
    """A line, or its beginning, with its kind."""
    expanded = line.expandtabs(TAB)
    text = expanded.lstrip(" ")
    indent = len(expanded) - len(text)
    if not text.strip():
        return Line(LineKind.BLANK, indent)
    if fence := _FENCE.match(text):
        return Line(LineKind.FENCE, indent, fence["content"], fence["marker"])
    if heading := _HEADING.match(text):
        return Line(LineKind.HEADING, indent, heading["content"], heading["marker"])
    if _RULE.match(text):  # before items: `* * *` would be one
        return Line(LineKind.RULE, indent, text)
    if _UNDERLINE.match(text):
        return Line(LineKind.UNDERLINE, indent, text)
    if item := _ITEM.match(text):
        content = item["content"] or ""  # None: the line ends after the marker
        column = len(expanded) - len(content)
        return Line(LineKind.ITEM, indent, content, item["marker"], column)
    if text.startswith(">"):
        return Line(LineKind.QUOTE, indent, text[1:].removeprefix(" "))
    return Line(LineKind.TABLE if text.startswith("|") else LineKind.TEXT, indent, text)


def is_delimiter_row(line: str) -> bool:
    """Whether the line separates the header of a table from its rows."""
    return "|" in line and _DELIMITER_ROW.match(line) is not None


def is_decided(beginning: str) -> bool:
    """Whether the rest of a line can't change its kind."""
    text = beginning.lstrip(" \t")
    if not text:
        return False
    match text[0]:
        case "|" | "=":  # the whole line shows whether it is a table's or an underline
            return False
        case "#":  # `#tag` is text
            return _HASHES.match(text) is not None
        case ">":
            return len(text) > 1  # the blank after the mark is not text
        case "*" | "-" | "_" | "+":
            # only such marks make a rule; a delimiter row may begin with `-`
            after = text.lstrip(f"{text[0]} \t")[:1]
            return bool(after) and not (text[0] == "-" and after in "|:")
        case "`" | "~":
            run = len(text) - len(text.lstrip(text[0]))
            return run < 3 and run < len(text)  # three and more open a fence
        case first if first in "0123456789":  # `1. x` is an item, `1.5` is not
            return _DIGITS.match(text) is not None
        case _:
            return True


MAX_DEPTH = 6
"""Deeper lists and quotes are not indented more."""


class OpenItem(Struct, frozen=True):
    """The columns of its sign and its text in the source, and the text's margin on the screen."""

    sign_column: int
    content_column: int
    margin: int


class OpenItems:
    """The items of lists in which a line may stand, the outermost first."""

    def __init__(self) -> None:
        self._items: list[OpenItem] = []

    @property
    def are_open(self) -> bool:
        """Whether there is one."""
        return bool(self._items)

    @property
    def innermost(self) -> OpenItem:
        """The last one; without items, it is as if one began at the margin."""
        return self._items[-1] if self._items else OpenItem(0, 0, 0)

    @property
    def indent(self) -> str:
        """The blanks before the innermost item's text on the screen."""
        return " " * self.innermost.margin

    def open(self, line: Line, margin: int) -> None:
        """Add the item that a line begins."""
        if len(self._items) < MAX_DEPTH:
            self._items.append(OpenItem(line.indent, line.content_column, margin))

    def close_before(self, line: Line) -> None:
        """Remove the items that a line does not belong to."""
        is_item = line.kind is LineKind.ITEM
        while self._items:
            min_indent = self.innermost.content_column
            if is_item:  # two more blanks make a nested item, even if the text begins later
                min_indent = min(min_indent, self.innermost.sign_column + 2)
            if line.indent >= min_indent:
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
        """The rows for Rich, as wide as the prefix leaves."""
        width = max(1, options.max_width - len(self.prefix))  # a window may be narrower
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
    """The lines after a `fence`, in its language; `margin` stands before each of them."""

    def __init__(self, fence: Line, theme: str, glyphs: Glyphs, margin: str) -> None:
        self._fence = fence
        words = fence.content.split()
        self._language = words[0].strip("{}.,").lower() if words else ""  # `{.python}` is Pandoc's
        self._glyphs = glyphs
        self._margin = margin
        self._last_lines: list[str] = []
        """The lines that determine the colours of the next one."""
        self._theme = Syntax.get_theme(theme)
        self._styles: dict[Any, Style] = {}
        """Those of the theme by the kinds of tokens."""

    def top(self) -> Piece:
        """The edge above the code, with its language."""
        return Piece(Text(f"{self._margin}{self._glyphs.top} {self._language}".rstrip(), "dim"))

    def bottom(self) -> Piece:
        """The edge below the code."""
        return Piece(Text(self._margin + self._glyphs.bottom, "dim"))

    def is_closed_by(self, source: str) -> bool:
        """Whether a line ends the block: at least as many of the same marks, and nothing else."""
        mark, opening = source.strip(), self._fence.marker
        return len(mark) >= len(opening) and set(mark) == {opening[0]}

    def line(self, source: str) -> Piece:
        """A line with colours."""
        # code is set in as far as its fence; where it has fewer blanks, all its text stays
        indent = self._fence.indent
        code = source[:indent].lstrip(" ") + source[indent:]
        return Piece(Text(self._margin + INDENT) + self._highlighted(code), soft_wrap=True)

    def _highlighted(self, code: str) -> Text:
        """A line in the colours of its language, as the lines before it determine them.

        It is plain without a language, or an unknown one, and if it is very long.
        """
        if len(self._last_lines) >= MAX_CONTEXT:  # half of them, as then most calls drop none
            del self._last_lines[: MAX_CONTEXT // 2]
        self._last_lines.append(code)
        result = Text(code)
        if not self._language or len(code) > HIGHLIGHT_WIDTH or self._lexer is None:
            return result
        source = "\n".join(self._last_lines) + "\n"
        line_start = len(source) - len(code) - 1
        for token_start, token, value in self._lexer.get_tokens_unprocessed(source):
            token_end = token_start + len(value)
            if token_end > line_start and value.strip():
                # a token such as a long string may begin in an earlier line
                begin = max(0, token_start - line_start)
                result.stylize(self._style(token), begin, token_end - line_start)
        return result

    @cached_property
    def _lexer(self) -> Any:
        """The rules of the language, which are slow to load; None if it is unknown."""
        return Syntax("", self._language).lexer

    def _style(self, token: Any) -> Style:
        """The style of a kind of token, without the background of the theme."""
        if token not in self._styles:
            style = self._theme.get_style_for_token(token)
            plain = Style(color=style.color, bold=style.bold, italic=style.italic, dim=style.dim)
            self._styles[token] = plain
        return self._styles[token]
