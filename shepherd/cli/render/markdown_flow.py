"""Markdown that arrives in chunks, as ink that is written once.

Text is returned word by word, code and table rows line by line. The result does not depend on the
chunks.
"""

from rich.text import Text

from shepherd.cli.render.inline import InlineStream, styled
from shepherd.cli.render.markdown_lines import (
    MAX_DEPTH,
    CodeBlock,
    Line,
    LineKind,
    OpenItems,
    closes_fence,
    is_decided,
    is_delimiter_row,
    quoted,
    read_line,
    with_margin,
)
from shepherd.cli.render.tables import TableStream
from shepherd.cli.terminal.paint import BLANK_LINE, INDENT, Glyphs, Ink, Piece, Row, Words

CODE_INDENT = 4
_HEADING_STYLES = {1: "markdown.h1", 2: "markdown.h2", 3: "markdown.h3"}


class MarkdownFlow:
    """Reads chunks and returns ink; `held` is the text that later text decides on."""

    def __init__(self, code_theme: str, glyphs: Glyphs, depth: int = 0) -> None:
        self._theme = code_theme
        self._glyphs = glyphs
        self._depth = depth
        self._out: list[Ink] = []
        self._reset()

    def _reset(self) -> None:
        self._buffer = ""
        self._flows = False
        """Whether the buffer continues a line whose kind is known."""
        self._inline: InlineStream | None = None
        """The open paragraph, heading or item."""
        self._style = ""
        """That of the open heading; other text has none."""
        self._items = OpenItems()
        self._fence: tuple[str, int, CodeBlock] | None = None
        """The mark that opened the block of code, its indent, and the block."""
        self._header: str | None = None
        """A line that is the header of a table if the next one is a delimiter."""
        self._table: TableStream | None = None
        self._quote: MarkdownFlow | None = None
        self._last_kind: LineKind | None = None
        self._after_blank = False

    @property
    def held(self) -> str:
        """The text that was read but not returned."""
        if self._quote is not None:
            return self._quote.held
        before = self._inline.held if self._inline else ""
        header = "" if self._header is None else self._header + "\n"
        return before + header + self._buffer

    def feed(self, text: str) -> list[Ink]:
        """Read text; returns the ink that it finished."""
        self._buffer += text
        while self._step():
            pass
        return self._taken()

    def finish(self) -> list[Ink]:
        """Return the rest, and begin a new text."""
        if self._buffer:
            self._buffer += "\n"
            while self._step():
                pass
        self._end_blocks()
        self._end_fence()
        out = self._taken()
        self._reset()
        return out

    def _taken(self) -> list[Ink]:
        out, self._out = self._out, []
        return out

    def _step(self) -> bool:
        """Read a line, or its beginning; False if more text is needed."""
        line, newline, rest = self._buffer.partition("\n")
        if not self._flows and not newline and not self._is_decided(line):
            return False
        self._buffer = rest
        if not self._flows:
            self._line(line)
        elif self._quote is not None:
            self._quote_text(line)
        else:
            self._text(line)
        if newline:
            self._line_end()
        self._flows = not newline and bool(self._flows or line)
        return bool(newline)

    def _line_end(self) -> None:
        if self._quote is not None:
            self._quote_text("\n")
        elif self._style:
            self._end_text()
        elif self._header is None:
            self._text("\n")

    def _is_decided(self, line: str) -> bool:
        """Whether the kind of a line is known from its beginning, so that its text can flow."""
        if self._fence or self._table or not is_decided(line):
            return False
        may_be_code = self._inline is None and read_line(line).indent >= CODE_INDENT
        return not may_be_code and (self._header is None or line.lstrip()[0] not in ":-|")

    def _line(self, source: str) -> None:
        if self._fence is not None:
            self._code_line(source)
            return
        line = read_line(source)
        if self._continues_table(source, line):
            return
        if self._quote is not None and not self._continues_quote(line):
            self._end_quote()
        if self._quote is not None:
            self._quote_text(line.content)
        elif line.kind is LineKind.BLANK:
            self._end_text()
            self._after_blank = True
        else:
            self._block(source, line)
            self._after_blank = False

    def _block(self, source: str, line: Line) -> None:
        open_text = self._inline is not None
        if line.kind is LineKind.ITEM and not self._is_item(line, open_text=open_text):
            line = Line(LineKind.TEXT, line.indent, "", source.strip())
        # text after an open paragraph continues it, whatever its indent
        if line.kind is not LineKind.TEXT or not open_text:
            self._items.close(line)
        margin = self._items.content
        if not open_text and line.indent - margin >= CODE_INDENT and line.kind is not LineKind.ITEM:
            self._indented_code(source, margin + CODE_INDENT)
        elif line.kind is LineKind.TEXT or (line.kind is LineKind.UNDERLINE and not open_text):
            self._paragraph(line.content)
        else:
            self._begin_block(line)

    def _begin_block(self, line: Line) -> None:
        match line.kind:
            case LineKind.HEADING:
                self._heading(line)
            case LineKind.ITEM:
                self._item(line)
            case LineKind.FENCE:
                self._open_fence(line)
            case LineKind.QUOTE:
                self._open_quote(line)
            case LineKind.TABLE:
                self._header = line.content
            case _:
                self._rule(line)

    # text

    def _paragraph(self, text: str) -> None:
        if self._inline is not None:
            self._text(text)
            return
        self._gap(LineKind.TEXT)
        margin = Text(self._items.indent)
        self._open_text(margin, margin)
        self._text(text)

    def _heading(self, line: Line) -> None:
        self._end_text()
        self._gap(LineKind.HEADING)
        self._open_text(Text(), Text(), _HEADING_STYLES.get(len(line.marker), "markdown.h4"))
        self._text(line.content)

    def _open_text(self, first: Text, rest: Text, style: str = "") -> None:
        self._out.append(Row(first, rest))
        self._inline = InlineStream()
        self._style = style

    def _text(self, text: str) -> None:
        if self._inline is not None:
            self._words(self._inline.feed(text))

    def _words(self, pieces: list[str]) -> None:
        for piece in pieces:
            text = styled(piece)
            if self._style:
                text.stylize_before(self._style)
            self._out.append(Words(text))

    def _end_text(self) -> None:
        if self._inline is not None:
            self._words(self._inline.finish())
            self._inline = None
            self._style = ""

    # blocks

    def _end_blocks(self) -> None:
        """End everything that is open, but for a block of code."""
        self._end_quote()
        self._end_table()
        if self._header is not None:
            header, self._header = self._header, None
            self._paragraph(header)
        self._end_text()

    def _gap(self, kind: LineKind) -> None:
        """A blank row between blocks, but not between the lines of a list."""
        in_list = self._items.any and not self._after_blank
        is_tight = in_list and (self._last_kind is LineKind.ITEM or kind is LineKind.ITEM)
        if self._last_kind is not None and not is_tight:
            self._out.append(BLANK_LINE)
        self._last_kind = LineKind.ITEM if in_list else kind

    def _rule(self, line: Line) -> None:
        self._end_text()
        if line.kind is LineKind.RULE:
            self._gap(line.kind)
        self._out.append(with_margin(Text(self._glyphs.rule * 3, "dim"), self._items.indent))

    def _indented_code(self, source: str, indent: int) -> None:
        if self._last_kind is not LineKind.FENCE or self._after_blank:  # the first line of code
            self._gap(LineKind.FENCE)
        code = source.expandtabs(CODE_INDENT)[indent:]
        self._out.append(Piece(Text(self._items.indent + INDENT + code), soft_wrap=True))

    # lists

    def _is_item(self, line: Line, *, open_text: bool) -> bool:
        """Whether a line like `2024. was` begins an item."""
        is_first = line.marker in ("-", "*", "+", "1.", "1)")
        return self._items.any or not open_text or (is_first and bool(line.content))

    def _item(self, line: Line) -> None:
        self._end_text()
        was_list = self._last_kind is LineKind.ITEM and not self._after_blank
        margin = self._items.margin or 1
        if self._last_kind is not None and not was_list:
            self._out.append(BLANK_LINE)
        self._last_kind = LineKind.ITEM
        sign = self._glyphs.bullet if line.marker in "-*+" else line.marker
        first = Text(" " * margin)
        first.append(sign, "" if line.marker in "-*+" else "markdown.item.number")
        first.append(" ")
        self._items.open(line, len(first))
        self._open_text(first, Text(" " * len(first)))
        self._text(line.content)

    # code

    def _open_fence(self, line: Line) -> None:
        self._end_text()
        self._gap(LineKind.FENCE)
        info = line.content.split()
        language = info[0].strip("{}.,").lower() if info else ""
        block = CodeBlock(language, self._theme, self._glyphs, self._items.indent)
        self._fence = line.marker, line.indent, block
        self._out.append(block.top())

    def _code_line(self, source: str) -> None:
        if self._fence is None:
            return
        mark, indent, block = self._fence
        if closes_fence(mark, source):
            self._end_fence()
        else:
            margin = source[:indent]
            self._out.append(block.line(margin.lstrip(" ") + source[indent:]))

    def _end_fence(self) -> None:
        if self._fence is not None:
            self._out.append(self._fence[2].bottom())
            self._fence = None

    # tables

    def _continues_table(self, source: str, line: Line) -> bool:
        is_row = "|" in source and line.kind in (LineKind.TABLE, LineKind.TEXT)
        if self._table is not None:
            if is_row:
                self._table_rows(self._table.feed(source))
                return True
            self._end_table()
        elif self._header is not None:
            header, self._header = self._header, None
            if is_delimiter_row(source):
                self._end_text()
                self._gap(LineKind.TABLE)
                self._table = TableStream(header, source, self._glyphs.rule)
                return True
            self._paragraph(header + "\n")
        return False

    def _table_rows(self, rows: list[Piece]) -> None:
        self._out += [with_margin(row.renderable, self._items.indent) for row in rows]

    def _end_table(self) -> None:
        if self._table is not None:
            self._table_rows(self._table.finish())
            self._table = None

    # quotes

    def _open_quote(self, line: Line) -> None:
        self._end_text()
        self._gap(LineKind.QUOTE)
        if self._depth >= MAX_DEPTH:
            self._open_text(Text(), Text())
            self._text(line.content)
            return
        self._quote = MarkdownFlow(self._theme, self._glyphs, self._depth + 1)
        self._quote_text(line.content)

    def _continues_quote(self, line: Line) -> bool:
        if line.kind is LineKind.QUOTE:
            return True
        return line.kind is LineKind.TEXT and self._quote is not None and self._quote.is_lazy

    @property
    def is_lazy(self) -> bool:
        """Whether a line of text continues an open paragraph."""
        if self._quote is not None:
            return self._quote.is_lazy
        return self._inline is not None and not self._style

    def _quote_text(self, text: str) -> None:
        if self._quote is not None:
            self._out += quoted(self._quote.feed(text), self._edge())

    def _end_quote(self) -> None:
        if self._quote is not None:
            quote, self._quote = self._quote, None
            self._out += quoted(quote.finish(), self._edge())

    def _edge(self) -> str:
        return f"{self._items.indent}{self._glyphs.edge} "
