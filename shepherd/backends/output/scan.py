"""What readers of calls are made of: steps over text that arrives in pieces."""

import re
from collections.abc import Callable, Generator
from enum import Enum, auto

from shepherd.backends.output import notation as n
from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.repair import MAX_DEPTH

Steps = Generator[None, None, bool]
"""Steps that wait for text at each `yield`; True if what they look for is there."""

MAX_SPACE = 256

_HOLES = {
    n.ID: re.compile(n.ID_PATTERN),
    n.FROM_0: re.compile(n.NUMBER_PATTERN),
    n.FROM_1: re.compile(n.NUMBER_PATTERN),
    n.TYPE: re.compile(r"[\w-]{1,32}"),
}
_SPACE = re.compile(r"\s*")
_OUTSIDE = re.compile(r"[\"'{}()\[\]<]")
_INSIDE = {q: re.compile(rf"\\(?:.|\Z)|[{q}<]", re.DOTALL) for q in "\"'"}


class CutError(Exception):
    """The output was cut off where more text would have to decide."""


class Scanned:
    """A text that grows, and a place in it; nothing is read twice."""

    def __init__(self, text: str) -> None:
        self._text: str = text
        self._pos: int = 0
        self._is_final: bool = False
        self._is_cut: bool = False
        self._word: str = ""
        self._value: str = ""
        """What was read last: a key or a word for a type, and a value."""

    def _more(self) -> Steps:
        """Wait for text; False if none follows."""
        if self._is_cut:
            raise CutError
        if self._is_final:
            return False
        yield
        return True

    def _char(self) -> Generator[None, None, str]:
        """The next character behind whitespace, which is skipped; "" at the end."""
        while True:
            space = _SPACE.match(self._text, self._pos)
            self._pos = space.end() if space else self._pos
            if self._pos < len(self._text):
                return self._text[self._pos]
            if not (yield from self._more()):
                return ""

    def _next_of(self, markers: MarkerSet) -> Generator[None, None, str]:
        """Which of these comes next, behind whitespace; "" if none does."""
        while (yield from self._char()):
            hit = markers.at(self._text, self._pos, final=self._is_final)
            if hit is None or hit.marker is not None:
                return hit.marker or "" if hit else ""
            yield from self._more()
        return ""

    def _literal(self, text: str) -> Steps:
        """Read this text with its holes, and any whitespace where it begins or has some.

        Nothing is read if anything else follows.
        """
        start = self._pos
        for part in parts(text):
            if not (yield from self._part(part)):
                self._pos = start
                return False
        return True

    def _part(self, part: str) -> Steps:
        """Read a word or a hole behind whitespace."""
        hole, text_start = _HOLES.get(part), self._pos
        while (yield from self._char()):
            start, left = self._pos, len(self._text) - self._pos
            match = hole.match(self._text, start) if hole else None
            if match and (match.end() < len(self._text) or self._is_final):
                self._word, self._pos = match[0], match.end()
                return True
            if hole is None and self._text.startswith(part, start):
                self._pos = start + len(part)
                return True
            may_be = match or (
                hole is None and left < len(part) and part.startswith(self._text[start:])
            )
            if not may_be or start - text_start > MAX_SPACE or not (yield from self._more()):
                break
        return False

    def _find(self, text: str) -> Steps:
        """Go to this text, or to the end of the output."""
        start = self._pos
        while (at := self._text.find(text, start)) < 0:
            start = max(self._pos, len(self._text) - len(text) + 1)
            if not (yield from self._more()):
                self._pos = len(self._text)
                return False
        self._pos = at
        return True

    def _quoted(self, may_be: Callable[[str], bool]) -> Generator[None, None, str]:
        """Read a string in quotes, as long as it may be one that is looked for; "" if it is not."""
        quote = yield from self._char()
        if quote not in ("'", '"'):
            return ""
        start = self._pos + 1
        while (end := self._text.find(quote, start)) < 0:
            if not may_be(self._text[start:]) or not (yield from self._more()):
                return ""
        self._pos = end + 1
        return self._text[start:end]

    def _until(self, characters: str) -> Steps:
        """Go to the next of these characters, which is near."""
        while not any(c in self._text[self._pos :] for c in characters):
            if len(self._text) - self._pos > MAX_SPACE or not (yield from self._more()):
                return False
        self._pos = min(at for c in characters if (at := self._text.find(c, self._pos)) >= 0)
        return True

    def _json(self, closing: str) -> Steps:
        """Read a value with brackets, which may end before the last one at the closing text.

        In a string that text ends it only before a line break, or where nothing else does.
        """
        brackets, start, at, in_string = Brackets(), self._pos, self._pos, -1
        while True:
            stop, at = brackets.scan(self._text, at)
            if stop is Stop.TOO_DEEP:
                return False
            if stop is Stop.CLOSED:
                break
            if stop is Stop.ANGLE:
                is_closing = yield from self._is_closing(
                    closing, at, in_string=bool(brackets.quote)
                )
                if is_closing:
                    break
                if is_closing is None and in_string < 0:
                    in_string = at
                at += 1
            elif not (yield from self._more()):
                at = in_string if in_string >= 0 else at
                break
        self._value, self._pos = self._text[start:at].rstrip(), at
        return True

    def _is_closing(
        self, closing: str, at: int, *, in_string: bool
    ) -> Generator[None, None, bool | None]:
        """Whether the closing text is here, and ends a value; None in a string, which may go on."""
        if not closing.startswith("<"):
            return False
        behind = at + len(closing)
        while len(self._text) <= behind and closing.startswith(self._text[at:behind]):
            if not (yield from self._more()):
                break
        if not self._text.startswith(closing, at):
            return False
        return True if not in_string or self._text.startswith("\n", behind) else None


class Stop(Enum):
    """The reason for a pause of the scan."""

    MORE = auto()  # all text is used
    CLOSED = auto()  # after the last bracket
    ANGLE = auto()  # at a `<`, which may begin a marker
    TOO_DEEP = auto()


class Brackets:
    """A scan over one value with brackets in pieces; it reads every character once.

    Both kinds of quotes delimit strings, as in Python.
    """

    def __init__(self) -> None:
        self.quote = ""
        """The quote that has begun a string, "" outside of strings."""
        self._depth = 0

    def scan(self, text: str, pos: int) -> tuple[Stop, int]:
        """Continue from `pos`; returns the reason and position of the next pause."""
        while match := (_INSIDE[self.quote] if self.quote else _OUTSIDE).search(text, pos):
            char, pos = match[0], match.end()
            if char in ("<", "\\"):  # a backslash at the end waits for what it escapes
                return Stop.ANGLE if char == "<" else Stop.MORE, match.start()
            if self.quote:
                self.quote = "" if char == self.quote else self.quote
            elif char in "\"'":
                self.quote = char
            elif char in "{[(":
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    return Stop.TOO_DEEP, pos
            elif char in "}])":
                self._depth -= 1
                if not self._depth:
                    return Stop.CLOSED, pos
        return Stop.MORE, len(text)


def parts(text: str) -> list[str]:
    """The words and the holes of a literal text, in order."""
    parts: list[str] = []
    pos = 0
    for hole in n.HOLES.finditer(text):
        parts += [*text[pos : hole.start()].split(), hole[0]]
        pos = hole.end()
    return [*parts, *text[pos:].split()]


def first_part(text: str) -> str:
    """The literal text at the beginning of a text with holes, without whitespace."""
    return next(iter(n.HOLES.split(text)[0].split()), "")
