"""Scans JSON as it arrives, to find its end and its first keys."""

import re
from enum import Enum, auto

from shepherd.backends.output.calls.repair import MAX_DEPTH

_OUTSIDE = re.compile(r"[\"'{}\[\],:<]")
_INSIDE = {q: re.compile(rf"[{q}\\<]") for q in "\"'"}
_MAX_WORD = 128


class Stop(Enum):
    """The reason for a pause of the scan."""

    MORE = auto()  # all text is used
    CLOSED = auto()  # after the last bracket
    ANGLE = auto()  # at a `<`, which may begin a marker; `skip_angle` continues
    KEY = auto()  # after a key of the outer object: `word`
    VALUE = auto()  # after a string value of the outer object: `key`, `word`
    TOO_DEEP = auto()


class JsonScanner:
    """A scan over one JSON object or array in pieces; it reads every character once.

    Both kinds of quotes delimit strings, as in Python. In a list, the outer object is each item.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.quote = ""
        self.key = ""
        self.word = ""
        self._outer = 1
        self.at_key = True
        self._escaped = False

    def scan(self, text: str, pos: int) -> tuple[Stop, int]:
        """Continue from `pos`; returns the reason and position of the next pause."""
        while pos < len(text):
            if self._escaped:
                self._escaped = False
                self._append(text[pos])
                pos += 1
                continue
            quote = self.quote
            match = (_INSIDE[quote] if quote else _OUTSIDE).search(text, pos)
            if quote and self.depth == self._outer:
                self._append(text[pos : match.start() if match else len(text)])
            if match is None:
                break
            pos = match.end()
            stop = self._in_string(match[0]) if quote else self._structure(match[0])
            if stop is not None:
                return stop, pos - (stop is Stop.ANGLE)
        return Stop.MORE, len(text)

    @property
    def in_outer_string(self) -> bool:
        """Whether it is inside a key or string value of the outer object; `word` is its text."""
        return bool(self.quote) and self.depth == self._outer

    def skip_angle(self) -> None:
        """Treat the `<` of the last pause as an ordinary character."""
        self._append("<")

    def _append(self, text: str) -> None:
        if self.in_outer_string and len(self.word) < _MAX_WORD:
            self.word += text[: _MAX_WORD - len(self.word)]

    def _in_string(self, char: str) -> Stop | None:
        if char == "\\":
            self._escaped = True
            self._append(char)
            return None
        if char == "<":
            return Stop.ANGLE
        self.quote = ""
        if self.depth != self._outer:
            return None
        if self.at_key:
            self.key = self.word
            return Stop.KEY
        return Stop.VALUE

    def _structure(self, char: str) -> Stop | None:
        if char in "\"'":
            self.quote = char
            self.word = ""
        elif char == "<":
            return Stop.ANGLE
        elif char in "{[":
            return self._open(char)
        elif char in "}]":
            self.depth -= 1
            return Stop.CLOSED if self.depth == 0 else None
        elif self.depth == self._outer:
            self.at_key = char == ","
        return None

    def _open(self, char: str) -> Stop | None:
        if self.depth == 0:
            self._outer = 1 if char == "{" else 2
        self.depth += 1
        if self.depth == self._outer:
            self.at_key = True
        return Stop.TOO_DEEP if self.depth > MAX_DEPTH else None
