"""The text inside a Markdown block, as pieces that never change once they are returned."""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from rich.text import Text

from shepherd.cli.terminal.paint import is_wide

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_SPAN = 600
"""Characters in which a span of Markdown must end; a longer one is plain text."""
MAX_WORD = 200
"""Longer words are returned in pieces of this length."""

_PLAIN = re.compile(r"[A-Za-z0-9.,;:()\"'?/=+%$#@{}|>-]+")
_MARKUP = re.compile(r"[\\`*_~\[<&!]")
_NO_ROW_START = frozenset("、。，．：；！？）」』】〉》〕…ー々")
_MATH = re.compile(r"\\\[.*?\\\]|\\\(.*?\\\)|\\[\[\]()]", re.DOTALL)
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_STYLES = {"strong": "bold", "em": "italic", "s": "strike"}


class InlineStream:
    """Cuts the text of a block into words and spans; an open span is held until it ends.

    A newline is returned before the line that follows it, and never at the end of the block.
    The pieces do not depend on the chunks in which the text arrives.
    """

    def __init__(self) -> None:
        self.held = ""
        self._before = " "

    def feed(self, text: str) -> list[str]:
        """Read text; returns the new pieces."""
        self.held += text
        return list(self._take(final=False))

    def finish(self) -> list[str]:
        """The rest, at the end of the block."""
        self.held = self.held.rstrip("\n")
        return list(self._take(final=True))

    def _take(self, *, final: bool) -> Iterator[str]:
        start = 0
        while start < len(self.held):
            end = _piece_end(self.held, start, self._before, final=final)
            is_last_newline = self.held.startswith("\n", start) and start + 1 == len(self.held)
            if end is None or is_last_newline:
                break
            yield self.held[start:end]
            self._before = self.held[end - 1]
            start = end
        self.held = self.held[start:]


def _piece_end(text: str, start: int, before: str, *, final: bool) -> int | None:
    """The end of the piece that begins at `start`, or None if later text decides it."""
    if text[start].isspace():
        return start + 1
    at = start
    limit = start + MAX_WORD
    while at < len(text):
        if at > start and (text[at].isspace() or _may_break(text, at)):
            return at
        if at >= limit:
            return limit
        plain = _PLAIN.match(text, at, limit)
        if plain:
            at = plain.end()
            continue
        end = _Span(text, at, text[at - 1] if at else before, final=final).end()
        if end is None:
            return None
        at = end
    return len(text) if final else None


def _may_break(text: str, at: int) -> bool:
    """Whether a row may end before the character at `at`, without a space there."""
    after = text[at]
    return (is_wide(text[at - 1]) or is_wide(after)) and after not in _NO_ROW_START


class _Span:
    """What begins at a character that may be Markdown."""

    def __init__(self, text: str, at: int, before: str, *, final: bool) -> None:
        self._text = text
        self._at = at
        self._before = before
        self._limit = min(len(text), at + MAX_SPAN)
        self._final = final
        self._is_whole = final or len(text) > at + MAX_SPAN
        """Whether no later text can end the span."""

    def end(self) -> int | None:
        """The end of the span, or of the character; None if later text decides it."""
        match self._text[self._at]:
            case "\\":
                return self._escape()
            case "`":
                return self._code()
            case "*" | "_" | "~":
                return self._emphasis()
            case "[":
                return self._link()
            case _:
                return self._at + 1

    def _known(self, at: int) -> bool:
        """Whether it is known what is at this position, a character or the end."""
        return self._final or at < len(self._text)

    def _closed(self, position: int, length: int, otherwise: int) -> int | None:
        """The end of a closing mark at `position`; `otherwise` if there is none for good."""
        if position >= 0:
            return position + length
        return otherwise if self._is_whole else None

    def _escape(self) -> int | None:
        after = self._at + 1
        if not self._known(after):
            return None
        closing = {"[": "\\]", "(": "\\)"}.get(self._text[after : after + 1], "")
        if not closing:
            return min(after + 1, len(self._text))
        return self._closed(self._text.find(closing, after + 1, self._limit), 2, after + 1)

    def _run_end(self, at: int) -> int:
        character = self._text[at]
        while at < len(self._text) and self._text[at] == character:
            at += 1
        return at

    def _code(self) -> int | None:
        opened = self._run_end(self._at)
        if not self._known(opened):
            return None
        closing = re.compile(rf"(?<!`)`{{{opened - self._at}}}(?!`)")
        end_mark = closing.search(self._text, opened, self._limit)
        if end_mark and not self._known(end_mark.end()):
            return None
        return self._closed(end_mark.start() if end_mark else -1, opened - self._at, opened)

    def _emphasis(self) -> int | None:
        opened = self._run_end(self._at)
        if not self._known(opened):
            return None
        mark = self._text[self._at : opened]
        after = self._text[opened : opened + 1]
        is_inside_word = mark[0] == "_" and self._before.isalnum()
        if not after.strip() or is_inside_word or mark == "~":  # it opens nothing
            return opened
        at = opened
        while (at := self._text.find(mark, at, self._limit)) >= 0:
            end = self._run_end(at)
            if not self._known(end):
                return None
            if end - at == len(mark) and self._closes(at, end):
                return end
            at = end
        return opened if self._is_whole else None

    def _closes(self, at: int, end: int) -> bool:
        if self._text[at - 1].isspace():
            return False
        return self._text[at] != "_" or not self._text[end : end + 1].isalnum()

    def _link(self) -> int | None:
        closing = self._text.find("]", self._at, self._limit)
        if closing < 0:
            return self._at + 1 if self._is_whole else None
        if not self._known(closing + 1):
            return None
        if self._text[closing + 1 : closing + 2] != "(":
            return self._at + 1
        target = self._text.find(")", closing, self._limit)
        return self._closed(target, 1, self._at + 1)


def styled(piece: str) -> Text:
    """A piece with the styles of its Markdown; `\\[…\\]` and `\\(…\\)` stay as they are."""
    if not _MARKUP.search(piece):
        return Text(piece)
    source = piece if "`" in piece else _MATH.sub(_escaped, piece)
    text = Text()
    for token in markdown_parser().parseInline(source):
        _append(text, token.children or [])
    return text


def _escaped(match: re.Match[str]) -> str:
    return _PUNCTUATION.sub(r"\\\g<0>", match.group())


@cache
def markdown_parser() -> "MarkdownIt":
    """The parser of spans, made at its first use; text like HTML stays as it is."""
    from markdown_it import MarkdownIt  # slow to import

    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough")


def _append(text: Text, tokens: "list[Token]") -> None:
    styles: list[str] = []
    links: list[tuple[str, int]] = []
    for token in tokens:
        name, _, side = token.type.rpartition("_")
        match token.type:
            case "link_open":
                links.append((str(token.attrGet("href") or ""), len(text)))
            case "link_close":
                _append_target(text, *links.pop())
            case "softbreak" | "hardbreak":
                text.append("\n")
            case "code_inline":
                text.append(token.content, " ".join([*styles, "markdown.code"]))
            case "image":
                text.append(token.content)
                _append_target(text, str(token.attrGet("src") or ""), len(text))
            case _ if side == "open":
                styles.append(_STYLES.get(name, "none"))
            case _ if side == "close":
                styles.pop()
            case _:
                text.append(token.content, " ".join(styles))


def _append_target(text: Text, target: str, start: int) -> None:
    """Show the target of a link after its text, unless the text is the target."""
    label = text.plain[start:]
    text.stylize("markdown.link", start)
    if target and label not in (target, target.removeprefix("mailto:")):
        text.append(" (")
        text.append(target, "markdown.link_url")
        text.append(")")
