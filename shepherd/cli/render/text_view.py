"""Shows the model's text: finished blocks permanently, the rest live."""

from collections.abc import Iterator

from rich.padding import Padding
from rich.text import Text

from shepherd.cli.render.markdown_stream import Block, BlockKind, MarkdownStream
from shepherd.cli.terminal.paint import BLANK_LINE, INDENT, Piece
from shepherd.cli.terminal.sanitize import sanitize_chunk

HIGHLIGHT_LINES = 60
"""The number of previous lines that determine the colours of a line of code."""
HIGHLIGHT_WIDTH = 2000
"""Longer lines of code stay plain."""


class BlockPainter:
    """Paints blocks with the gap above a block and the code above a line of code."""

    def __init__(self, code_theme: str, *, styled: bool = True) -> None:
        self._code_theme = code_theme
        self._styled = styled
        self._last: Block | None = None
        self._code: list[str] = []
        self._language = "text"

    def reset(self) -> None:
        """Treat the next block as the first of its text."""
        self._last = None
        self._code.clear()

    def pieces(self, block: Block) -> Iterator[Piece]:
        """The painted block, with a blank line before it if needed."""
        if block.kind is BlockKind.BLANK:
            return
        if self._gap_before(block.kind):
            yield BLANK_LINE
        self._last = block
        match block.kind:
            case BlockKind.FENCE_OPEN:
                self._open_fence(block.text)
            case BlockKind.CODE:
                yield Piece(self._code_line(block.text), soft_wrap=True)
            case BlockKind.FENCE_CLOSE:
                self._code.clear()
            case _:
                yield self.body(block.text)

    def tail(self, text: str, *, in_code: bool, kind: BlockKind) -> list[Piece]:
        """The painted unfinished text."""
        if not text.strip():
            return []
        if in_code:
            return [Piece(Text(INDENT + text))]
        gap = [BLANK_LINE] if self._gap_before(kind) else []
        return [*gap, self.body(text)]

    def body(self, text: str) -> Piece:
        """Markdown outside a fence."""
        if not self._styled:
            return Piece(Text(text.rstrip("\n")), soft_wrap=True)
        from shepherd.cli.render.markdown import TerminalMarkdown  # slow to import

        return Piece(TerminalMarkdown(text, self._code_theme), trim=True)

    def _gap_before(self, kind: BlockKind) -> bool:
        last = self._last
        if last is None or kind in (BlockKind.CODE, BlockKind.FENCE_CLOSE):
            return False
        tight = last.kind is kind is BlockKind.ITEM and not last.text.endswith("\n\n")
        return not tight

    def _open_fence(self, line: str) -> None:
        info = line.strip().lstrip("`~").split()
        language = info[0].strip("{}.,").lower() if info else ""
        self._code.clear()
        self._language = language or "text"

    def _code_line(self, line: str) -> Text:
        code = line.rstrip("\n")
        self._code = [*self._code[-HIGHLIGHT_LINES:], code]
        if not self._styled or len(code) > HIGHLIGHT_WIDTH:
            return Text(INDENT + code)
        from shepherd.cli.render.markdown import highlight  # slow to import

        whole = highlight("\n".join(self._code), self._language, self._code_theme)
        highlighted = whole.split("\n", allow_blank=True)
        position = len(self._code) - 1
        result = highlighted[position] if position < len(highlighted) else Text(code)
        return Text(INDENT) + result


MAX_LIVE = 8000
"""The maximum of unfinished characters that are drawn; of more, only the end."""


class AnswerView:
    """Streams Markdown."""

    def __init__(self, code_theme: str, *, styled: bool) -> None:
        self._stream = MarkdownStream()
        self._painter = BlockPainter(code_theme, styled=styled)

    @property
    def is_open(self) -> bool:
        """Whether there is text that was not returned yet."""
        return bool(self._stream.tail.strip())

    def feed(self, text: str) -> list[Piece]:
        """Read text; returns the finished parts."""
        return self._pieces(self._stream.feed(sanitize_chunk(text)))

    def finish(self) -> list[Piece]:
        """Return the rest; the next text is a new one."""
        pieces = self._pieces(self._stream.finish())
        self._painter.reset()
        return pieces

    def live(self) -> list[Piece]:
        """The unfinished text in its current form."""
        return self._painter.tail(
            self._stream.tail[-MAX_LIVE:], in_code=self._stream.in_code, kind=self._stream.tail_kind
        )

    def _pieces(self, blocks: list[Block]) -> list[Piece]:
        return [piece for block in blocks for piece in self._painter.pieces(block)]


class ThinkingView:
    """Streams reasoning, dimmed, line by line; if hidden, it is only counted."""

    def __init__(self) -> None:
        self._partial = ""
        self.characters = 0

    @property
    def is_open(self) -> bool:
        """Whether there was reasoning since the last `finish`."""
        return self.characters > 0

    def feed(self, text: str) -> list[Piece]:
        """Read text; returns its finished lines."""
        text = sanitize_chunk(text)
        if not self.characters:
            text = text.lstrip("\n")
        self.characters += len(text)
        *lines, self._partial = (self._partial + text).split("\n")
        return [_dimmed(line) for line in lines]

    def finish(self) -> list[Piece]:
        """Return the rest."""
        rest, self._partial, self.characters = self._partial, "", 0
        return [_dimmed(rest)] if rest.strip() else []

    def live(self) -> list[Piece]:
        """The unfinished line."""
        return [_dimmed(self._partial[-MAX_LIVE:])] if self._partial else []


def _dimmed(line: str) -> Piece:
    return Piece(Padding(Text(line, style="dim italic"), (0, 0, 0, len(INDENT))))
