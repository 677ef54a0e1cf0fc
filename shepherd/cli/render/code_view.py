"""Blocks of code: an edge with the language, and coloured lines that can be copied whole."""

from typing import Any

from rich.style import Style
from rich.text import Text

from shepherd.cli.terminal.paint import INDENT, Glyphs, Piece

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
        from rich.syntax import Syntax  # slow to import

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
