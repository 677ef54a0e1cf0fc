"""Breaks flowing text into the rows of a terminal."""

import re
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from rich.style import Style
from rich.text import Text

from shepherd.cli.terminal import paint

Fragment = tuple[str, Style]
_TOKEN = re.compile(r"\n|[^\S\n]+|\S+")


class RowWriter:
    """Turns ink into text for a terminal, also in the middle of a row.

    The rows do not depend on the portions in which the ink arrives.
    """

    def __init__(self, painter: paint.Painter) -> None:
        self._painter = painter
        self._out: list[Fragment] = []
        """What the running `write` returns."""
        # the open row; widths and columns are in cells
        self._later_prefix = Text()
        """What stands before each further row of the open line."""
        self._width = 0
        """That of the window, as `write` was told."""
        self._column = 0
        """Where the next text is written."""
        self._first_column = 0
        """The column after what stands before the row."""
        self._blanks: list[Fragment] = []
        """Blanks that are written with the next word, unless it begins a row."""
        self._last_character = " "
        """The last one that was written."""
        self._is_row_open = False

    @property
    def blanks(self) -> str:
        """The blanks that the next word of the row comes after."""
        return "".join(text for text, _ in self._blanks)

    def write(self, ink: Iterable[paint.Ink], width: int) -> str:
        """The text of `ink`; it ends without a newline if a row may go on."""
        self._width = max(10, width)  # as for a piece: Rich needs some columns
        for item in ink:
            if isinstance(item, paint.Piece):
                self.close()
                self._out.append((self._painter.paint(item, width), Style.null()))
            elif isinstance(item, paint.Row):
                self.close()
                self._later_prefix = item.rest
                self._begin_row(item.first)
            else:
                self._add_words(item.text)
        out, self._out = self._out, []
        # neighbours of the same style share the sequences of the style
        return "".join(
            self._painter.with_style("".join(text for text, _ in group), style)
            for style, group in groupby(out, key=itemgetter(1))
        )

    def close(self) -> None:
        """End the open row; its newline is in the next result of `write`."""
        if self._is_row_open:
            self._out.append(("\n", Style.null()))
            self._is_row_open = False
        self._blanks.clear()

    def continue_below(self) -> None:
        """Continue an open line in a new row, which the caller begins."""
        if self._is_row_open:
            self._begin_row(self._later_prefix)

    def _begin_row(self, prefix: Text) -> None:
        """Begin a row with what stands before its text."""
        self._is_row_open = True
        self._blanks.clear()
        self._out += self._painter.fragments(prefix)
        self._column = self._first_column = paint.text_cells(prefix.plain)
        self._last_character = " "

    def _next_row(self) -> None:
        self._out.append(("\n", Style.null()))
        self._begin_row(self._later_prefix)

    def _add_words(self, text: Text) -> None:
        """Write the words of a text, each with the styles of its parts: `un**bold**` is one."""
        if not self._is_row_open:  # other output came into the middle of the text
            self._begin_row(self._later_prefix)
        word: list[Fragment] = []
        for content, style in self._painter.fragments(text):
            for token in _TOKEN.findall(content):
                if not token.isspace():
                    word.append((token, style))
                    continue
                self._add_word(word)
                word = []
                if token == "\n":
                    self._next_row()
                elif self._column > self._first_column:  # no row begins with blanks
                    self._blanks.append((token, style))
        self._add_word(word)

    def _add_word(self, word: list[Fragment]) -> None:
        """Write a word: in this row, in the next one, or divided if it is wider than a row."""
        if not word:
            return
        blanks, self._blanks = self._blanks, []
        gap = sum(len(text) for text, _ in blanks)
        cells = sum(paint.text_cells(text) for text, _ in word)
        first_text, _ = word[0]
        last_text, _ = word[-1]
        # a row may end beside a wide character, without a space
        may_break = paint.is_wide(self._last_character) or paint.is_wide(first_text[0])
        if self._column + gap + cells <= self._width:
            self._put([*blanks, *word])
        # without a gap, the word continues what is before it, which a row must not divide
        elif self._first_column + cells <= self._width and (gap or may_break):
            self._next_row()
            self._put(word)
        else:
            if self._column + gap < self._width:  # a row never ends with blanks
                self._put(blanks)
            self._put_divided(word)
        self._last_character = last_text[-1]

    def _put(self, fragments: list[Fragment]) -> None:
        self._out += fragments
        self._column += sum(paint.text_cells(text) for text, _ in fragments)

    def _put_divided(self, word: list[Fragment]) -> None:
        """Write a word over several rows, each filled to its end."""
        for text, style in word:
            at = 0
            while at < len(text):
                if self._column + paint.character_cells(text[at]) > self._width:
                    self._next_row()
                # a character of ASCII has one cell; others are measured one by one
                room = max(1, self._width - self._column)
                part = text[at : at + room] if text.isascii() else text[at]
                self._put([(part, style)])
                at += len(part)
