"""Shows the model's text as it arrives."""

from collections.abc import Sequence

from rich.padding import Padding
from rich.text import Text

from shepherd.cli.render.inline import InlineStream
from shepherd.cli.render.markdown_flow import MarkdownFlow
from shepherd.cli.terminal.paint import BLANK_LINE, INDENT, Ink, Painter, Piece, Row, Words
from shepherd.cli.terminal.sanitize import sanitize_chunk


class _PlainLines:
    """Text as it is, line by line, without blank lines at its beginning."""

    def __init__(self) -> None:
        self.held = ""
        self._is_begun = False

    def feed(self, text: str) -> list[Ink]:
        *lines, self.held = (self.held + text).split("\n")
        self._is_begun = self._is_begun or any(lines)
        return [Piece(Text(line), soft_wrap=True) for line in lines if self._is_begun]

    def finish(self) -> list[Ink]:
        rest, self.held = self.held, ""
        self._is_begun = False
        return [Piece(Text(rest), soft_wrap=True)] if rest.strip() else []


class AnswerView:
    """Streams Markdown; without styles, its source."""

    def __init__(self, painter: Painter) -> None:
        flow = MarkdownFlow(painter.code_theme, painter.glyphs)
        self._stream = flow if painter.styled else _PlainLines()
        self._has_text = False

    @property
    def is_open(self) -> bool:
        """Whether there was text since the last `finish`."""
        return self._has_text

    @property
    def held(self) -> str:
        """The text that can't be shown in its final form yet."""
        return self._stream.held

    def feed(self, text: str) -> list[Ink]:
        """Read text; returns its finished parts, after a blank line at the beginning."""
        return self._begun(self._stream.feed(sanitize_chunk(text)))

    def finish(self) -> list[Ink]:
        """Return the rest; the next text is a new one."""
        ink = self._begun(self._stream.finish())
        self._has_text = False
        return ink

    def _begun(self, ink: list[Ink]) -> list[Ink]:
        if not ink or self._has_text:
            return ink
        self._has_text = True
        return [BLANK_LINE, *ink]


class ThinkingView:
    """Streams reasoning, dimmed; if hidden, it is only counted."""

    def __init__(self, *, styled: bool = True) -> None:
        self._styled = styled
        self._lines = _PlainLines()
        self._words: InlineStream | None = None
        self.characters = 0

    @property
    def is_open(self) -> bool:
        """Whether there was reasoning since the last `finish`."""
        return self.characters > 0

    @property
    def held(self) -> str:
        """The end of the text, if it is the beginning of a word."""
        return self._words.held if self._words else ""

    def feed(self, text: str) -> Sequence[Ink]:
        """Read text; returns its finished words, or lines without styles."""
        text = sanitize_chunk(text)
        if not self.characters:
            text = text.lstrip("\n")
        self.characters += len(text)
        if not self._styled:
            return [_padded(line) for line in self._lines.feed(text)]
        return [item for line in text.splitlines(keepends=True) for item in self._flow(line)]

    def finish(self) -> Sequence[Ink]:
        """Return the rest."""
        self.characters = 0
        rest = [_padded(line) for line in self._lines.finish()]
        return [*rest, *self._end_line()]

    def _flow(self, line: str) -> Sequence[Ink]:
        ink = list[Ink]()
        if self._words is None:
            self._words = InlineStream()
            ink.append(Row(Text(INDENT), Text(INDENT)))
        ink += map(_dimmed, self._words.feed(line.removesuffix("\n")))
        return [*ink, *self._end_line()] if line.endswith("\n") else ink

    def _end_line(self) -> Sequence[Ink]:
        words, self._words = self._words, None
        return list(map(_dimmed, words.finish())) if words else []


def _dimmed(piece: str) -> Words:
    return Words(Text(piece, style="dim italic"))


def _padded(item: Ink) -> Piece:
    line = item.renderable if isinstance(item, Piece) else ""
    return Piece(Padding(line, (0, 0, 0, len(INDENT))))
