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
    is_decided,
    is_delimiter_row,
    quoted,
    read_line,
    with_margin,
)
from shepherd.cli.render.tables import TableStream
from shepherd.cli.terminal.paint import BLANK_LINE, INDENT, Glyphs, Ink, Piece, Row, Words

CODE_INDENT = 4
"""Blanks before a line that make it code."""
_HEADING_STYLES = {1: "markdown.h1", 2: "markdown.h2", 3: "markdown.h3"}


class MarkdownFlow:
    """Reads chunks and returns ink; `held` is the text that later text decides on."""

    def __init__(self, code_theme: str, glyphs: Glyphs, depth: int = 0) -> None:
        self._theme = code_theme
        self._glyphs = glyphs
        self._depth = depth  # in quotes
        self._new_ink: list[Ink] = []
        self._reset()

    def _reset(self) -> None:
        """Begin a new text."""
        # what arrives
        self._buffer = ""
        """The line that is not read to its end."""
        self._is_inside_line = False
        """Whether the buffer continues a line whose kind is known."""
        # what is open: one of these, within the items of lists
        self._text_stream: InlineStream | None = None
        """The open paragraph, heading or item."""
        self._heading_style = ""
        """That of the open heading; other text has none."""
        self._text_indent = 0
        """The blanks before the last line of the open text, if they would make it code."""
        self._items = OpenItems()
        self._code: CodeBlock | None = None
        """The open block of code."""
        self._header: str | None = None
        """A line that is the header of a table if the next one is a delimiter."""
        self._table: TableStream | None = None
        self._quote: MarkdownFlow | None = None
        """The text of the open quote, which is Markdown itself."""
        # what decides on a blank row between blocks
        self._last_kind: LineKind | None = None
        """The kind of the last block; None before the first."""
        self._is_after_blank_line = False

    @property
    def held(self) -> str:
        """The text that was read but not returned."""
        if self._quote is not None:
            return self._quote.held
        before = self._text_stream.held if self._text_stream else ""
        header = "" if self._header is None else self._header + "\n"
        return before + header + self._buffer

    def feed(self, text: str) -> list[Ink]:
        """Read text; returns the ink that it finished."""
        self._buffer += text
        while self._read_on():
            pass
        return self._take_new_ink()

    def finish(self) -> list[Ink]:
        """Return the rest, and begin a new text."""
        ink = self.feed("\n") if self._buffer else []
        self._end_quote()
        self._end_table()
        if self._header is not None:  # no delimiter row follows, so it is text
            self._add_to_paragraph(self._header)
        self._end_text()
        self._end_code()
        ink += self._take_new_ink()
        self._reset()
        return ink

    def _take_new_ink(self) -> list[Ink]:
        """Return the ink that is new since the last call."""
        ink, self._new_ink = self._new_ink, []
        return ink

    def _read_on(self) -> bool:
        """Read a line, or its beginning; False if more text is needed."""
        line, newline, following = self._buffer.partition("\n")
        if not self._is_inside_line and not newline and not self._is_kind_decided(line):
            return False
        self._buffer = following
        if not self._is_inside_line:
            self._begin_line(line)
        elif self._quote is not None:
            self._add_to_quote(line)
        else:
            self._add_text(line)
        if newline:
            self._end_line()
        self._is_inside_line = not newline
        return bool(newline)

    def _end_line(self) -> None:
        """Read the newline of a line."""
        if self._quote is not None:
            self._add_to_quote("\n")
        elif self._heading_style:
            self._end_text()  # a heading has one line
        elif self._header is None:  # whether a header ends with its line shows the next one
            self._add_text("\n")

    def _is_kind_decided(self, line: str) -> bool:
        """Whether the kind of a line is known from its beginning, so that its text can flow."""
        reads_whole_lines = self._code is not None or self._table is not None
        if reads_whole_lines or not is_decided(line):
            return False
        may_be_code = self._text_stream is None and read_line(line).indent >= CODE_INDENT
        may_be_delimiter_row = self._header is not None and line.lstrip()[0] in ":-|"
        return not may_be_code and not may_be_delimiter_row

    def _begin_line(self, source: str) -> None:
        """Read a line, or the beginning that decides its kind: it ends what it does not continue.

        Code, a table and a quote have their lines first; within code, nothing is Markdown.
        """
        if self._code is not None:
            self._add_code_line(source, self._code)
            return
        line = read_line(source)
        if self._continues_table(source, line):
            return
        if self._quote is not None and not self._continues_quote(line):
            self._end_quote()
        if self._quote is not None:
            self._add_to_quote(line.content)
        elif line.kind is LineKind.BLANK:
            self._end_text()
            self._is_after_blank_line = True
        else:
            self._begin_line_of_block(source, line)
            self._is_after_blank_line = False

    def _begin_line_of_block(self, source: str, line: Line) -> None:
        """Read a line outside of code, tables and quotes that is not blank."""
        after_text = self._text_stream is not None
        if line.kind is LineKind.ITEM and not self._begins_item(line, after_text=after_text):
            line = Line(LineKind.TEXT, line.indent, source.strip())
        # text after an open paragraph continues it, whatever its indent
        if line.kind is not LineKind.TEXT or not after_text:
            self._items.close_before(line)
        margin = self._items.innermost.content_column
        is_indented = line.indent - margin >= CODE_INDENT
        if is_indented and not after_text and line.kind is not LineKind.ITEM:
            self._add_indented_code(source, margin + CODE_INDENT)
        # `===` underlines the text above it; without one it is text
        elif line.kind is LineKind.TEXT or (line.kind is LineKind.UNDERLINE and not after_text):
            self._indent_text(line.indent - margin if is_indented else 0)
            self._add_to_paragraph(line.content)
        else:
            self._begin_block(line)

    def _begin_block(self, line: Line) -> None:
        """Begin the block of a line that is not text."""
        match line.kind:
            case LineKind.HEADING:
                self._begin_heading(line)
            case LineKind.ITEM:
                self._begin_item(line)
            case LineKind.FENCE:
                self._open_code(line)
            case LineKind.QUOTE:
                self._open_quote(line)
            case LineKind.TABLE:
                self._header = line.content
            case _:  # a rule, or `===` under a text
                self._add_rule(line)

    # text

    def _indent_text(self, indent: int) -> None:
        """Let the next line of the open text begin further in or out, as quoted code does."""
        if self._text_stream is not None and indent != self._text_indent:
            self._end_text()
            blanks = Text(self._items.indent + " " * indent)
            self._begin_text(blanks, blanks)
            self._text_indent = indent

    def _add_to_paragraph(self, text: str) -> None:
        """Add text to the open paragraph, heading or item, or begin a paragraph with it."""
        if self._text_stream is not None:
            self._add_text(text)
            return
        self._separate(LineKind.TEXT)
        margin = Text(self._items.indent)
        self._begin_text(margin, margin)
        self._add_text(text)

    def _begin_heading(self, line: Line) -> None:
        """Begin a heading, whose level is the number of `#`."""
        self._end_text()
        self._separate(LineKind.HEADING)
        style = _HEADING_STYLES.get(len(line.marker), "markdown.h4")
        self._begin_text(first=Text(), rest=Text(), style=style)
        self._add_text(line.content)

    def _begin_text(self, first: Text, rest: Text, style: str = "") -> None:
        """Begin flowing text: `first` is before its first row, `rest` before the others."""
        self._new_ink.append(Row(first, rest))
        self._text_indent = 0
        self._text_stream = InlineStream()
        self._heading_style = style

    def _add_text(self, text: str) -> None:
        """Add to the open paragraph, heading or item; a newline without one says nothing."""
        if self._text_stream is not None:
            self._add_words(self._text_stream.feed(text))

    def _add_words(self, pieces: list[str]) -> None:
        """Add pieces of the open text to the new ink, bold or as the heading is."""
        for piece in pieces:
            text = styled(piece)
            if self._heading_style:
                text.stylize_before(self._heading_style)
            self._new_ink.append(Words(text))

    def _end_text(self) -> None:
        """End the open paragraph, heading or item."""
        if self._text_stream is not None:
            self._add_words(self._text_stream.finish())
            self._text_stream = None
            self._heading_style = ""

    # blocks

    def _separate(self, kind: LineKind) -> None:
        """A blank row before a block of this kind, but not between the lines of a list."""
        in_list = self._items.are_open and not self._is_after_blank_line
        is_tight = in_list and (self._last_kind is LineKind.ITEM or kind is LineKind.ITEM)
        if self._last_kind is not None and not is_tight:
            self._new_ink.append(BLANK_LINE)
        self._last_kind = LineKind.ITEM if in_list else kind  # what an item has is a part of it

    def _add_rule(self, line: Line) -> None:
        """Draw a line, between blocks or under a text."""
        self._end_text()
        if line.kind is LineKind.RULE:  # an underline stays below its text
            self._separate(line.kind)
        self._new_ink.append(with_margin(Text(self._glyphs.rule * 3, "dim"), self._items.indent))

    def _add_indented_code(self, source: str, indent: int) -> None:
        """Add a line of code, without the `indent` blanks that make it one."""
        is_first_line = self._last_kind is not LineKind.FENCE
        if is_first_line or self._is_after_blank_line:
            self._separate(LineKind.FENCE)
        code = source.expandtabs(CODE_INDENT)[indent:]
        self._new_ink.append(Piece(Text(self._items.indent + INDENT + code), soft_wrap=True))

    # lists

    def _begins_item(self, line: Line, *, after_text: bool) -> bool:
        """Whether a line such as `2024. was` begins an item.

        Within a paragraph, which may be broken before any number, only the first item of a list
        does, and only with text.
        """
        may_be_first = line.marker in ("-", "*", "+", "1.", "1)")
        return self._items.are_open or not after_text or (may_be_first and bool(line.content))

    def _begin_item(self, line: Line) -> None:
        """Begin an item with its bullet or number, as far in as the list is nested."""
        self._end_text()
        continues_list = self._last_kind is LineKind.ITEM and not self._is_after_blank_line
        margin = self._items.innermost.margin or 1  # an outermost item is set in by one cell
        if self._last_kind is not None and not continues_list:
            self._new_ink.append(BLANK_LINE)
        self._last_kind = LineKind.ITEM
        is_bullet = line.marker in "-*+"
        first = Text(" " * margin)
        first.append(
            self._glyphs.bullet if is_bullet else line.marker,
            "" if is_bullet else "markdown.item.number",
        )
        first.append(" ")
        self._items.open(line, len(first))
        self._begin_text(first, Text(" " * len(first)))
        self._add_text(line.content)

    # code

    def _open_code(self, fence: Line) -> None:
        """Begin a block of code."""
        self._end_text()
        self._separate(LineKind.FENCE)
        self._code = CodeBlock(fence, self._theme, self._glyphs, self._items.indent)
        self._new_ink.append(self._code.top())

    def _add_code_line(self, source: str, block: CodeBlock) -> None:
        """Add a line to the open block of code, or close it."""
        if block.is_closed_by(source):
            self._end_code()
        else:
            self._new_ink.append(block.line(source))

    def _end_code(self) -> None:
        """End the open block of code, also one without a closing fence."""
        if self._code is not None:
            self._new_ink.append(self._code.bottom())
            self._code = None

    # tables

    def _continues_table(self, source: str, line: Line) -> bool:
        """Read a line as a part of a table; False if it is none, which ends the table."""
        is_row = "|" in source and line.kind in (LineKind.TABLE, LineKind.TEXT)
        if self._table is not None:
            if is_row:
                self._add_table_rows(self._table.feed(source))
                return True
            self._end_table()
        elif self._header is not None:
            header, self._header = self._header, None
            if is_delimiter_row(source):
                self._end_text()
                self._separate(LineKind.TABLE)
                self._table = TableStream(header, source, self._glyphs.rule)
                return True
            self._add_to_paragraph(header + "\n")  # it was text that begins with `|`
        return False

    def _add_table_rows(self, rows: list[Piece]) -> None:
        """Return rows, set in as far as the item that the table is in."""
        self._new_ink += [with_margin(row.renderable, self._items.indent) for row in rows]

    def _end_table(self) -> None:
        """Return the rows that the open table has held."""
        if self._table is not None:
            self._add_table_rows(self._table.finish())
            self._table = None

    # quotes

    def _open_quote(self, line: Line) -> None:
        """Begin a quote, whose text is Markdown of its own."""
        self._end_text()
        self._separate(LineKind.QUOTE)
        if self._depth >= MAX_DEPTH:  # it has no edge of its own
            self._begin_text(first=Text(), rest=Text())
            self._add_text(line.content)
            return
        self._quote = MarkdownFlow(self._theme, self._glyphs, self._depth + 1)
        self._add_to_quote(line.content)

    def _continues_quote(self, line: Line) -> bool:
        """Whether a line belongs to the open quote; text in its last paragraph needs no `>`."""
        if line.kind is LineKind.QUOTE:
            return True
        return line.kind is LineKind.TEXT and self._quote is not None and self._quote.in_paragraph

    @property
    def in_paragraph(self) -> bool:
        """Whether a line of text continues an open paragraph."""
        if self._quote is not None:
            return self._quote.in_paragraph
        return self._text_stream is not None and not self._heading_style

    def _add_to_quote(self, text: str) -> None:
        """Read text of the open quote; its ink has an edge."""
        if self._quote is not None:
            self._new_ink += quoted(self._quote.feed(text), self._quote_edge())

    def _end_quote(self) -> None:
        """Return what the open quote has held."""
        if self._quote is not None:
            quote, self._quote = self._quote, None
            self._new_ink += quoted(quote.finish(), self._quote_edge())

    def _quote_edge(self) -> str:
        """What is before each row of a quote."""
        return f"{self._items.indent}{self._glyphs.edge} "
