"""Text as lines of a question; counts replace whitespace that would hide the text after it."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from shepherd.tools.invisible import count_hidden, count_right_to_left, pieces
from shepherd.tools.text import pluralize

MAX_SEGMENT = 2000
"""Characters of a line that are laid out together; longer lines have several segments."""
MAX_BLANK_LINES = 4
"""Consecutive blank lines that are shown; for more, their number is shown."""
TAB = "    "
MARKER = "warn"
"""The style of markers for text that would be invisible."""

_HIDING_WHITESPACE = re.compile(r"[ \t]{40,}|[ \t]+$")
_DIFF_STYLES = {"+": "added", "-": "removed", "@": "hunk", " ": "quiet", "\\": "quiet"}


class Line(NamedTuple):
    """A line, or a segment of a long one.

    `sign` is its first character in a diff. `span` is the number of lines of the text that it
    represents, 0 for the later segments of a line. `is_fact` marks Shepherd's own statements about
    the call.
    """

    text: str
    style: str = ""
    sign: str = ""
    span: int = 1
    is_marker: bool = False
    is_fact: bool = False

    def fragments(self) -> Iterator[tuple[str, str]]:
        """The text as pieces with their styles; nothing in it is invisible."""
        if self.is_marker:
            yield self.sign, self.style
            yield self.text, MARKER
            return
        for is_notation, group in groupby(self._pieces(), lambda piece: piece[1]):
            yield "".join(text for text, _ in group), MARKER if is_notation else self.style

    def _pieces(self) -> Iterator[tuple[str, bool]]:
        yield self.sign, False
        at = 0
        for whitespace in _HIDING_WHITESPACE.finditer(self.text):
            yield from _visible(self.text[at : whitespace.start()])
            yield f"<{pluralize(len(whitespace[0]), 'whitespace character')}>", True
            at = whitespace.end()
        yield from _visible(self.text[at:])


def _visible(text: str) -> Iterator[tuple[str, bool]]:
    first, *others = text.split("\t")
    yield from pieces(first)
    for other in others:
        yield TAB, False
        yield from pieces(other)


def fact(text: str, style: str) -> Line:
    """A statement by Shepherd about the call, on one line."""
    return Line(text, style, is_fact=True)


def is_diff(text: str) -> bool:
    """Whether the text is a unified diff."""
    return text.startswith("--- ") and "\n+++ " in text and "\n@@ " in text


def text_lines(text: str) -> Iterator[Line]:
    """All lines of `text`; a diff is coloured."""
    signed = is_diff(text)
    lines = (_line(line, signed=signed) for line in text.split("\n"))
    for (is_blank, sign), group in groupby(lines, _kind):
        if not is_blank:
            for line in group:
                yield from _segments(line)
            continue
        run = list(group)
        if len(run) > MAX_BLANK_LINES:
            marker = f"<{pluralize(len(run), 'blank line')}>"
            yield Line(marker, run[0].style, sign, len(run), is_marker=True)
        else:
            yield from run


def _kind(line: Line) -> tuple[bool, str]:
    """Whether a line is blank, and the common sign of a run of such lines."""
    is_blank = not line.text.strip(" \t")
    return is_blank, line.sign if is_blank else ""


def _line(line: str, *, signed: bool) -> Line:
    if not signed:
        return Line(line)
    if line.startswith(("--- ", "+++ ")):
        return Line(line, "bold")
    style = _DIFF_STYLES.get(line[:1], "")
    return Line(line[1:], style, line[:1]) if style != "hunk" else Line(line, style)


def _segments(line: Line) -> Iterator[Line]:
    yield (
        line
        if len(line.text) <= MAX_SEGMENT
        else Line(line.text[:MAX_SEGMENT], line.style, line.sign)
    )
    for start in range(MAX_SEGMENT, len(line.text), MAX_SEGMENT):
        yield Line(line.text[start : start + MAX_SEGMENT], line.style, span=0)


MAX_NAMED = 5
"""The limit of hosts, and of words, that are listed."""

_HOST = re.compile(r"//(?:[^\s/?#@]*@)?([\w.-]+)")
_WORD = re.compile(r"\w*[^\W\x00-\x7f]\w*")
_ALIKE = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC")
"""Alphabets with letters that look the same."""


def warnings(texts: Sequence[str]) -> Iterator[str]:
    """A line for each kind of difference that a reader would miss in texts that look alike."""
    text = "\n".join(texts)
    hidden = max(map(count_hidden, texts))
    if hidden:
        yield f"! {pluralize(hidden, 'hidden character')}: each is shown as <U+its number>"
    turned = max(map(count_right_to_left, texts))
    if turned:
        yield f"! {pluralize(turned, 'right-to-left letter')}: the screen may show another order"
    if not text.isascii():
        yield from _named("host", _hosts(text))
        yield from _named("word", _mixed_words(text))


def _named(kind: str, lines: list[str]) -> Iterator[str]:
    for line in lines[:MAX_NAMED]:
        yield f"! {line}"
    if len(lines) > MAX_NAMED:
        yield f"! {pluralize(len(lines) - MAX_NAMED, f'more {kind}')} like that"


def _hosts(text: str) -> list[str]:
    hosts = dict.fromkeys(host for host in _HOST.findall(text) if not host.isascii())
    return [f"the host {host} is {_punycode(host)}" for host in hosts]


def _punycode(host: str) -> str:
    labels = unicodedata.normalize("NFKC", host).lower().split(".")
    return ".".join(
        label if label.isascii() else "xn--" + label.encode("punycode").decode() for label in labels
    )


def _mixed_words(text: str) -> list[str]:
    words = dict.fromkeys(_WORD.findall(text))
    mixed: list[str] = []
    for word in words:
        alphabets = sorted({a for c in word if (a := _alphabet(c))})
        if len(alphabets) > 1:
            mixed.append(f"{word[:40]} mixes alphabets: {', '.join(alphabets)}")
    return mixed


@cache
def _alphabet(character: str) -> str:
    name = unicodedata.name(character, "")
    return next((a.capitalize() for a in _ALIKE if name.startswith(a)), "")
