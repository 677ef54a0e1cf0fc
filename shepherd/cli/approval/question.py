"""The question before a tool runs: the full text, and the answers."""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct

from shepherd.tools.access import AccessKind, Claim
from shepherd.tools.permissions.approval import ApprovalRequest, Choice, Part
from shepherd.tools.text import count_hidden, count_right_to_left, pieces, pluralize, reveal

MAX_SEGMENT = 2000
"""Characters of a line that are laid out together; longer lines have several segments."""
MAX_BLANK_LINES = 4
"""Consecutive blank lines that are shown; for more, their number is shown."""
TAB = "    "
MARKER = "warn"
"""The style of markers for text that would be invisible."""

_HIDING_WHITESPACE = re.compile(r"[ \t]{40,}|[ \t]+$")
_DIFF_STYLES = {"+": "added", "-": "removed", "@": "hunk", " ": "quiet", "\\": "quiet"}


MAX_DOTS = 8
"""More whitespace at the end of a line is counted."""


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
        # neighbours of one kind become one piece, as most are single characters
        for is_notation, group in groupby(self._pieces(), lambda piece: piece[1]):
            yield "".join(text for text, _ in group), MARKER if is_notation else self.style

    def _pieces(self) -> Iterator[tuple[str, bool]]:
        """The text in pieces, each with whether it is a notation such as `<40 whitespace …>`."""
        yield self.sign, False
        at = 0
        for whitespace in _HIDING_WHITESPACE.finditer(self.text):
            yield from _visible(self.text[at : whitespace.start()])
            count = len(whitespace[0])
            if whitespace.end() == len(self.text) and count <= MAX_DOTS:
                yield "·" * count, True
            else:
                yield f"<{pluralize(count, 'whitespace character')}>", True
            at = whitespace.end()
        yield from _visible(self.text[at:])


def _visible(text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, with spaces for tabs and notations for invisible characters."""
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
    # a run has blank lines of one sign, or other lines
    for (is_blank, sign), group in groupby(lines, _kind_of_run):
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


def _kind_of_run(line: Line) -> tuple[bool, str]:
    """Whether a line is blank, and its sign in a diff if it is."""
    is_blank = not line.text.strip(" \t")
    return is_blank, line.sign if is_blank else ""


def _line(line: str, *, signed: bool) -> Line:
    """A line of the text; if `signed`, of a diff, whose first character is a sign."""
    if not signed:
        return Line(line)
    if line.startswith(("--- ", "+++ ")):
        return Line(line, "bold")
    style = _DIFF_STYLES.get(line[:1], "")
    if style == "hunk":  # `@@ -1,3 +1,4 @@` has no sign
        return Line(line, style)
    return Line(line[1:], style, line[:1])


def _segments(line: Line) -> Iterator[Line]:
    """The line in segments of at most MAX_SEGMENT characters, of which only the first counts."""
    yield Line(line.text[:MAX_SEGMENT], line.style, line.sign)
    for start in range(MAX_SEGMENT, len(line.text), MAX_SEGMENT):
        yield Line(line.text[start : start + MAX_SEGMENT], line.style, span=0)


QUIET_SECONDS = 0.5
"""Input this soon after a question appears, or around a yes, is not an answer to it."""
MAX_IN_TITLE = 80
_IN_PREVIEW = frozenset(
    ["command", "path", "url", "method", "headers", "body", "content", "old_string", "new_string"]
)
"""Arguments that a tool's preview shows."""
_VERBS = {
    AccessKind.READ: "reads",
    AccessKind.WRITE: "writes",
    AccessKind.NETWORK: "connects to",
    AccessKind.ENVIRONMENT: "uses the variable",
}


class Answer(StrEnum):
    """The possible answers; the values are the words to type if there is no menu."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    SOME = "some"
    NO = "no"
    TELL = "tell"

    @property
    def allows(self) -> bool:
        """Whether the tool runs."""
        return self not in (Answer.NO, Answer.TELL)


class _Words(NamedTuple):
    """The key of an answer in a menu, and its meaning for a call, a plan and an effect."""

    key: str
    meaning: str
    of_plan: str
    of_effect: str


_EDITS = "yes, and change files here without asking (mode edits)"
_WORDS = {
    Answer.ONCE: _Words("y", "yes, this call", "yes, in the mode before", "yes"),
    Answer.SESSION: _Words(
        "s", "yes, for this session", _EDITS, "yes, and such changes in this session"
    ),
    Answer.ALWAYS: _Words("a", "yes, and keep the rule", "yes", "yes, and keep the rule"),
    Answer.SOME: _Words("c", *["yes, but choose which of them"] * 3),
    Answer.NO: _Words("n", "no", "no", "no: nothing has changed"),
    Answer.TELL: _Words(
        "f",
        "no, and tell the model why",
        "no, and tell the model what to change",
        "no, and tell the model why",
    ),
}


class Entry(Struct, frozen=True):
    """A line of the menu; `rules` are exactly the rules that it would add."""

    answer: Answer
    rules: tuple[str, ...] = ()
    text: str = ""

    @property
    def letter(self) -> str:
        """Its key in the menu."""
        return _WORDS[self.answer].key

    @property
    def meaning(self) -> str:
        """A short description."""
        return self.text or _WORDS[self.answer].meaning


class Question(Struct, frozen=True):
    """A title, the text that must be read to its end before a yes counts, and the answers.

    `details` are shown on request. The answer SOME leads to the choice between the `parts`.
    """

    title: str
    cause: str
    lines: tuple[Line, ...]
    entries: tuple[Entry, ...]
    details: tuple[Line, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def heading(self) -> str:
        """The title with the cause."""
        return f"{self.title}  ({self.cause})" if self.cause else self.title


def approval_question(request: ApprovalRequest) -> Question:
    """The question of a request; every shortened part is in the text in full."""
    caller = f" for {_short(request.caller)}" if request.caller else ""
    sandbox = f" {_short(request.sandbox)}" if request.sandbox else ""
    title, lines, entries = f"Allow {_short(request.call.name)}", _lines(request), _entries(request)
    if request.is_plan:  # its answers choose the mode in which it is carried out
        title, lines = "Carry out this plan", text_lines(request.preview)
        entries = (Entry(e.answer, text=_WORDS[e.answer].of_plan) for e in entries)
    elif request.is_effect:
        title = "Keep these changes"
        entries = (Entry(e.answer, e.rules, _WORDS[e.answer].of_effect) for e in entries)
    return Question(
        title=f"{title}{caller}?{sandbox}",
        cause=_short(request.cause),
        lines=tuple(lines),
        entries=tuple(entries),
        details=tuple(text_lines(request.detail)) if request.detail else (),
        parts=request.parts,
    )


def _entries(request: ApprovalRequest) -> Iterator[Entry]:
    """A line for each answer; those that would last are left out if they add no rule."""
    for answer in Answer:
        rules = request.rules_for(choice_of(answer))
        if answer is Answer.SOME and not request.parts:
            continue
        if rules or answer not in (Answer.SESSION, Answer.ALWAYS):
            yield Entry(answer, tuple(reveal(rule.describe()) for rule in rules))


def choice_of(answer: Answer) -> Choice:
    """The choice that an answer makes."""
    if answer is Answer.SOME:
        return Choice.ONCE
    return Choice(answer.value) if answer.allows else Choice.DENY


def _lines(request: ApprovalRequest) -> Iterator[Line]:
    """Warnings, the preview, and what the preview does not show."""
    rules = [rule.describe() for rule in (*request.session, *request.always)]
    url = str(request.call.arguments.get("url", ""))
    texts = [request.preview, request.detail, url, *_facts(request), *rules]
    for warning in warnings(texts):
        yield fact(warning, "warn")
    if request.preview:
        yield from text_lines(request.preview)
    for text in _facts(request):
        yield fact(text, "quiet")


def _facts(request: ApprovalRequest) -> Iterator[str]:
    """What neither the preview nor the title shows in full: `path = /etc/hosts`."""
    named = {
        "tool": request.call.name,
        "caller": request.caller,
        "because of": request.cause,
        "sandbox": request.sandbox,
    }
    for name, text in named.items():
        if len(reveal(text)) > MAX_IN_TITLE:  # the title has it cut
            yield f"{name}: {text}"
    for name, value in request.call.arguments.items():
        if name not in _IN_PREVIEW or not request.preview:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{name} = {text}"
    for access in request.accesses:
        # a command's mention of a path need not be an access
        if access.kind in _VERBS and access.claim is not Claim.MENTION:
            yield f"{_VERBS[access.kind]} {access.target}"


def _short(text: str) -> str:
    """The text for a title: on one line, with visible notations, and cut."""
    line = reveal(text)
    return line if len(line) <= MAX_IN_TITLE else line[: MAX_IN_TITLE - 1] + "…"


MAX_NAMED = 5
"""The limit of hosts, and of words, that are listed."""

_HOST = re.compile(r"//(?:[^\s/?#@]*@)?([\w.-]+)")
_WORD = re.compile(r"\w*[^\W\x00-\x7f]\w*")
_ALIKE = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC")
"""Alphabets with letters that look the same."""


def warnings(texts: Sequence[str]) -> Iterator[str]:
    """A line for each kind of difference that a reader would miss in texts that look alike."""
    text = "\n".join(texts)
    # the largest number, as the texts repeat each other
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
    """At most MAX_NAMED of the warnings, and the number of the others of this kind."""
    for line in lines[:MAX_NAMED]:
        yield f"! {line}"
    if len(lines) > MAX_NAMED:
        yield f"! {pluralize(len(lines) - MAX_NAMED, f'more {kind}')} like that"


def _hosts(text: str) -> list[str]:
    """A sentence for each host with other letters than English ones, which may look like them."""
    hosts = dict.fromkeys(host for host in _HOST.findall(text) if not host.isascii())
    return [f"the host {host} is {_punycode(host)}" for host in hosts]


def _punycode(host: str) -> str:
    """The host as the network knows it: `bücher.de` is `xn--bcher-kva.de`."""
    labels = unicodedata.normalize("NFKC", host).lower().split(".")
    return ".".join(
        label if label.isascii() else "xn--" + label.encode("punycode").decode() for label in labels
    )


def _mixed_words(text: str) -> list[str]:
    """A sentence for each word with letters of several alphabets, which may imitate another."""
    words = dict.fromkeys(_WORD.findall(text))
    mixed: list[str] = []
    for word in words:
        alphabets = sorted({*map(_alphabet, word)} - {""})
        if len(alphabets) > 1:
            mixed.append(f"{word[:40]} mixes alphabets: {', '.join(alphabets)}")
    return mixed


@cache
def _alphabet(character: str) -> str:
    """`Latin`, `Cyrillic` or another alphabet of `_ALIKE`; "" for any other character."""
    name = unicodedata.name(character, "")
    return next((alphabet.capitalize() for alphabet in _ALIKE if name.startswith(alphabet)), "")
