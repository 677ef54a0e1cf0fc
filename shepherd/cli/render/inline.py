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
        """The end of the text, from the beginning of a word or span that may still grow."""
        self._last_returned = " "
        """The character before `held`."""

    def feed(self, text: str) -> list[str]:
        """Read text; returns the new pieces."""
        self.held += text
        return list(self._ended_pieces(final=False))

    def finish(self) -> list[str]:
        """The rest, at the end of the block."""
        self.held = self.held.rstrip("\n")
        return list(self._ended_pieces(final=True))

    def _ended_pieces(self, *, final: bool) -> Iterator[str]:
        """The pieces whose end is known; what follows them stays held."""
        start = 0
        while start < len(self.held):
            end = _piece_end(self.held, start, self._last_returned, final=final)
            # a newline at the end of a block is not shown, and this may be that end
            is_last_newline = self.held.startswith("\n", start) and start + 1 == len(self.held)
            if end is None or is_last_newline:
                break
            yield self.held[start:end]
            self._last_returned = self.held[end - 1]
            start = end
        self.held = self.held[start:]


def _piece_end(text: str, start: int, before: str, *, final: bool) -> int | None:
    """The end of the piece that begins at `start`, or None if later text decides it.

    A piece is a space, or a word with the spans in it: `a **b c**d` has the pieces `a`, the space
    and `**b c**d`. `before` is the character before `text`.
    """
    if text[start].isspace():
        return start + 1
    at = start
    limit = start + MAX_WORD
    while at < len(text):
        if at > start and (text[at].isspace() or _may_break(text, at)):
            return at
        if at >= limit:  # a word without an end must be shown too
            return limit
        plain = _PLAIN.match(text, at, limit)
        if plain:
            at = plain.end()
            continue
        # the character may be Markdown: a span belongs to the word whole, with its spaces
        end = _Span(text, at, text[at - 1] if at else before, final=final).end()
        if end is None:
            return None
        at = end
    # without a space after it, a word may go on in the next chunk
    return len(text) if final else None


def _may_break(text: str, at: int) -> bool:
    """Whether a row may end before the character at `at`, without a space there."""
    after = text[at]
    return (is_wide(text[at - 1]) or is_wide(after)) and after not in _NO_ROW_START


class _Span:
    """What begins at a character that may be Markdown.

    The methods return None if later text decides where it ends.
    """

    def __init__(self, text: str, at: int, before: str, *, final: bool) -> None:
        self._text = text
        self._at = at
        self._before = before
        """The character before the span."""
        self._limit = min(len(text), at + MAX_SPAN)
        """Where the span must have ended."""
        self._is_final_text = final
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

    def _has_arrived(self, at: int) -> bool:
        """Whether it is known what is at this position, a character or the end of the text."""
        return self._is_final_text or at < len(self._text)

    def _end_of_closing(self, position: int, length: int, unclosed: int) -> int | None:
        """The end of a closing mark of `length` at `position`.

        At position -1 there is none: the end is `unclosed` if none can follow, else None.
        """
        if position >= 0:
            return position + length
        return unclosed if self._is_whole else None

    def _escape(self) -> int | None:
        r"""The end of `\*`, or of a formula such as `\(x + y\)`."""
        after = self._at + 1
        if not self._has_arrived(after):
            return None
        closing = {"[": "\\]", "(": "\\)"}.get(self._text[after : after + 1], "")
        if not closing:
            return min(after + 1, len(self._text))  # a backslash may be the last character
        position = self._text.find(closing, after + 1, self._limit)
        return self._end_of_closing(position, len(closing), unclosed=after + 1)

    def _run_end(self, at: int) -> int:
        """The position after the equal characters that begin at `at`."""
        character = self._text[at]
        while at < len(self._text) and self._text[at] == character:
            at += 1
        return at

    def _code(self) -> int | None:
        """The end of `code`, which as many backticks close as opened it."""
        opening_end = self._run_end(self._at)
        if not self._has_arrived(opening_end):  # more backticks may follow
            return None
        count = opening_end - self._at
        # so many backticks, and neither more before nor after them
        closing = re.compile(rf"(?<!`)`{{{count}}}(?!`)").search(
            self._text, opening_end, self._limit
        )
        if closing and not self._has_arrived(closing.end()):
            return None  # another backtick would make it a longer mark, which closes nothing
        position = closing.start() if closing else -1
        return self._end_of_closing(position, count, unclosed=opening_end)

    def _emphasis(self) -> int | None:
        """The end of `*text*`, `**text**`, `_text_` or `~~text~~`."""
        opening_end = self._run_end(self._at)
        if not self._has_arrived(opening_end):  # more of the mark may follow
            return None
        mark = self._text[self._at : opening_end]
        after = self._text[opening_end : opening_end + 1]
        is_inside_word = mark[0] == "_" and self._before.isalnum()  # as in `snake_case`
        if not after.strip() or is_inside_word or mark == "~":  # it opens nothing
            return opening_end
        at = opening_end
        while (at := self._text.find(mark, at, self._limit)) >= 0:
            end = self._run_end(at)
            if not self._has_arrived(end):
                return None
            # a run of another length, as `**` after `*`, is the mark of a span inside
            if end - at == len(mark) and self._closes_emphasis(at, end):
                return end
            at = end
        return opening_end if self._is_whole else None

    def _closes_emphasis(self, at: int, end: int) -> bool:
        """Whether the mark from `at` to `end` may close: not after a space, nor `_` in a word."""
        if self._text[at - 1].isspace():
            return False
        return self._text[at] != "_" or not self._text[end : end + 1].isalnum()

    def _link(self) -> int | None:
        """The end of `[text](target)`, or of `[` alone if it is no link."""
        closing = self._text.find("]", self._at, self._limit)
        if closing < 0:
            return self._at + 1 if self._is_whole else None
        if not self._has_arrived(closing + 1):
            return None
        if self._text[closing + 1 : closing + 2] != "(":  # `[1]` is text
            return self._at + 1
        target_end = self._text.find(")", closing, self._limit)
        return self._end_of_closing(target_end, len(")"), unclosed=self._at + 1)


def styled(piece: str) -> Text:
    """A piece with the styles of its Markdown; `\\[…\\]` and `\\(…\\)` stay as they are."""
    if not _MARKUP.search(piece):  # most pieces are plain words, and parsing is slow
        return Text(piece)
    # in code, backslashes before the punctuation of a formula would be visible
    source = piece if "`" in piece else _MATH.sub(_escaped, piece)
    text = Text()
    for token in markdown_parser().parseInline(source):
        _append(text, token.children or [])
    return text


def _escaped(match: re.Match[str]) -> str:
    """The formula with a backslash before each mark, so that Markdown leaves it as it is."""
    return _PUNCTUATION.sub(r"\\\g<0>", match.group())


@cache
def markdown_parser() -> "MarkdownIt":
    """The parser of spans, made at its first use; text like HTML stays as it is."""
    from markdown_it import MarkdownIt  # slow to import

    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough")


def _append(text: Text, tokens: "list[Token]") -> None:
    """Add what the parser read, with its styles; a link has its target after it."""
    styles: list[str] = []  # of the open spans, the innermost last
    links: list[tuple[str, int]] = []  # the open ones: the target, and where the label begins
    for token in tokens:
        name, _, side = token.type.rpartition("_")  # such as `strong_open`
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
                styles.append(_STYLES.get(name, "none"))  # of any other span, no style
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
