"""The model's text on its way to the screen: finished blocks are shown, the rest is live."""

from rich.padding import Padding
from rich.text import Text

from shepherd.cli.render.blocks import BlockPainter
from shepherd.cli.render.markdown_stream import Block, MarkdownStream
from shepherd.cli.terminal.paint import INDENT, Piece
from shepherd.cli.terminal.sanitize import sanitize_chunk

MAX_LIVE = 8000
"""Characters of unfinished text that are drawn; of more only the end."""


class AnswerView:
    """Streams Markdown."""

    def __init__(self, code_theme: str, *, styled: bool) -> None:
        self._stream = MarkdownStream()
        self._painter = BlockPainter(code_theme, styled=styled)

    @property
    def is_open(self) -> bool:
        """Whether there is text that was not given out yet."""
        return bool(self._stream.tail.strip())

    def feed(self, text: str) -> list[Piece]:
        """Take text; give what is finished."""
        return self._pieces(self._stream.feed(sanitize_chunk(text)))

    def finish(self) -> list[Piece]:
        """Give the rest; the next text is a new one."""
        pieces = self._pieces(self._stream.finish())
        self._painter.reset()
        return pieces

    def live(self) -> list[Piece]:
        """The unfinished text as it looks now."""
        return self._painter.tail(
            self._stream.tail[-MAX_LIVE:], in_code=self._stream.in_code, kind=self._stream.tail_kind
        )

    def _pieces(self, blocks: list[Block]) -> list[Piece]:
        return [piece for block in blocks for piece in self._painter.pieces(block)]


class ThinkingView:
    """Streams reasoning, dimmed, line by line; hidden, it only counts."""

    def __init__(self) -> None:
        self._partial = ""
        self.characters = 0

    @property
    def is_open(self) -> bool:
        """Whether there was reasoning since the last `finish`."""
        return self.characters > 0

    def feed(self, text: str) -> list[Piece]:
        """Take text; give its finished lines."""
        text = sanitize_chunk(text)
        if not self.characters:
            text = text.lstrip("\n")
        self.characters += len(text)
        *lines, self._partial = (self._partial + text).split("\n")
        return [_dimmed(line) for line in lines]

    def finish(self) -> list[Piece]:
        """Give the rest."""
        rest, self._partial, self.characters = self._partial, "", 0
        return [_dimmed(rest)] if rest.strip() else []

    def live(self) -> list[Piece]:
        """The unfinished line."""
        return [_dimmed(self._partial[-MAX_LIVE:])] if self._partial else []


def _dimmed(line: str) -> Piece:
    return Piece(Padding(Text(line, style="dim italic"), (0, 0, 0, len(INDENT))))
