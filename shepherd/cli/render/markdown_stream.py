"""Splits streamed Markdown into finished blocks and an open tail.

Only whole lines are parsed, so the result does not depend on the chunks of a text. A returned block
never changes; all blocks and the tail together are the text.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class BlockKind(StrEnum):
    """The kind of a block; the lines of a code fence are separate blocks."""

    BLANK = "blank"
    PARAGRAPH = "paragraph"
    HEADING = "heading"
    RULE = "rule"
    ITEM = "item"
    QUOTE = "quote"
    TABLE = "table"
    INDENTED = "indented"
    FENCE_OPEN = "fence_open"
    CODE = "code"
    FENCE_CLOSE = "fence_close"


@dataclass(frozen=True, slots=True)
class Block:
    """A finished piece of Markdown: its source with line ends."""

    kind: BlockKind
    text: str


_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)")
_INNER_FENCE = re.compile(r"\s+(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(\1[ \t]*){2,}$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])(\s|$)")
_OPENING_ITEM = re.compile(r" {0,3}([-*+]|1[.)])\s+\S")
_QUOTE = re.compile(r" {0,3}>")
_DELIMITER_ROW = re.compile(r" {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_INDENTED = re.compile(r" {4}|\t")


class MarkdownStream:
    """Reads chunks and returns the finished blocks."""

    def __init__(self) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._kind = BlockKind.BLANK
        self._fence = ""
        self._inner_fence = ""
        self._out: list[Block] = []

    @property
    def tail(self) -> str:
        """The text after the last finished block."""
        return "".join(self._lines) + self._partial

    @property
    def in_code(self) -> bool:
        """Whether the tail is a line of a code fence."""
        return bool(self._fence)

    @property
    def tail_kind(self) -> BlockKind:
        """The likely kind of the tail, by its beginning."""
        return self._kind if self._lines else _opened_kind(self._partial)

    def feed(self, text: str) -> list[Block]:
        """Read the next piece of text and return the blocks that it finished."""
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._line(line + "\n")
        return self._take_blocks()

    def finish(self) -> list[Block]:
        """Return the rest as blocks, and reset for another text."""
        if self._partial:
            line, self._partial = self._partial, ""
            self._line(line)
        self._close()
        self._fence = self._inner_fence = ""
        return self._take_blocks()

    def _take_blocks(self) -> list[Block]:
        out, self._out = self._out, []
        return out

    def _line(self, line: str) -> None:
        if self._fence:
            self._code_line(line)
        elif not self._continues(line):
            self._close()
            self._start(line)

    def _code_line(self, line: str) -> None:
        if _closes(self._fence, line):
            self._fence = ""
            self._emit(BlockKind.FENCE_CLOSE, line)
        else:
            self._emit(BlockKind.CODE, line)

    def _continues(self, line: str) -> bool:
        """Add the line to the open block if it belongs there."""
        if not self._lines:
            return False
        match self._kind:
            case BlockKind.ITEM:
                belongs = self._continues_item(line)
            case BlockKind.PARAGRAPH:
                return self._continues_paragraph(line)
            case BlockKind.QUOTE:
                belongs = bool(_QUOTE.match(line)) or not _interrupts(line)
            case BlockKind.TABLE:
                belongs = "|" in line and not _interrupts(line)
            case _:
                belongs = bool(_INDENTED.match(line)) and not _is_blank(line)
        if belongs:
            self._lines.append(line)
        return belongs

    def _continues_item(self, line: str) -> bool:
        if self._inner_fence:
            if _closes(self._inner_fence, line):
                self._inner_fence = ""
                return True
            if _is_blank(line) or line[0].isspace():
                return True
            self._inner_fence = ""
        if _is_blank(line):
            return True
        indent = len(line) - len(line.lstrip())
        item = _ITEM.match(line)
        own = len(self._lines[0]) - len(self._lines[0].lstrip())
        if item and not _RULE.match(line):
            return indent > own + 1
        if indent > own + 1:
            fence = _INNER_FENCE.match(line)
            self._inner_fence = fence.group(1) if fence else ""
            return True
        return not _is_blank(self._lines[-1]) and not _interrupts(line)

    def _continues_paragraph(self, line: str) -> bool:
        if _DELIMITER_ROW.match(line) and "|" in line and "|" in self._lines[-1]:
            header = self._lines.pop()
            self._close()
            self._kind, self._lines = BlockKind.TABLE, [header, line]
            return True
        if _UNDERLINE.match(line):
            self._lines.append(line)
            self._close()
            return True
        if _interrupts(line):
            return False
        self._lines.append(line)
        return True

    def _start(self, line: str) -> None:
        fence = _FENCE.match(line)
        if fence:
            self._fence = fence.group(2)
            self._emit(BlockKind.FENCE_OPEN, line)
        elif _is_blank(line):
            self._emit(BlockKind.BLANK, line)
        elif _HEADING.match(line):
            self._emit(BlockKind.HEADING, line)
        elif _RULE.match(line):
            self._emit(BlockKind.RULE, line)
        else:
            self._kind, self._lines = _opened_kind(line), [line]

    def _close(self) -> None:
        if self._lines:
            self._emit(self._kind, "".join(self._lines))
            self._lines = []
        self._inner_fence = ""

    def _emit(self, kind: BlockKind, text: str) -> None:
        self._out.append(Block(kind, text))


def _opened_kind(line: str) -> BlockKind:
    if _ITEM.match(line):
        return BlockKind.ITEM
    if _QUOTE.match(line):
        return BlockKind.QUOTE
    return BlockKind.INDENTED if _INDENTED.match(line) else BlockKind.PARAGRAPH


def _is_blank(line: str) -> bool:
    return not line.strip()


def _interrupts(line: str) -> bool:
    """Whether the line ends a paragraph before it."""
    return _is_blank(line) or any(
        p.match(line) for p in (_FENCE, _HEADING, _RULE, _QUOTE, _OPENING_ITEM)
    )


def _closes(fence: str, line: str) -> bool:
    mark = line.strip()
    return len(mark) >= len(fence) and set(mark) == {fence[0]}
