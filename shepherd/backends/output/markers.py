"""Literal markers and stop strings in text that arrives in pieces."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple


class Hit(NamedTuple):
    """The result at `start`; `marker` None means that more text must decide."""

    start: int
    marker: str | None


class MarkerSet:
    """A set of literal markers.

    If several markers begin at one place, the longest wins. While a longer one is still possible,
    the search waits. The result therefore does not depend on how the text is divided.
    """

    def __init__(self, markers: Collection[str]) -> None:
        self._markers = frozenset(markers)
        self._sorted_markers = sorted(self._markers)
        self._lengths = sorted({len(m) for m in self._markers}, reverse=True)  # the longest first
        self.first_characters = frozenset(m[0] for m in self._markers)
        any_first = "|".join(map(re.escape, sorted(self.first_characters)))
        self._first_pattern = re.compile(any_first or "(?!)")

    @staticmethod
    @lru_cache(maxsize=64)
    def of(*markers: str) -> "MarkerSet":
        """The set of `markers`; equal sets are created once."""
        return MarkerSet(markers)

    def at(self, text: str, pos: int, *, final: bool = False) -> Hit | None:
        """The marker that begins at `pos`, if any."""
        if text[pos : pos + 1] not in self.first_characters:
            return None
        if not final and self._begins_longer_one(text, pos):
            return Hit(pos, None)
        for length in self._lengths:
            marker = text[pos : pos + length]
            if marker in self._markers:
                return Hit(pos, marker)
        return None

    def after_space(self, text: str) -> Hit | None:
        """The marker behind the whitespace at the start of `text`, if any."""
        start = len(text) - len(text.lstrip())
        return Hit(start, None) if start == len(text) else self.at(text, start)

    def _begins_longer_one(self, text: str, pos: int) -> bool:
        """Whether the rest of the text is the beginning of a longer marker.

        This uses a sorted list: a pattern of all names of a thousand tools takes seconds to
        compile.
        """
        if not self._lengths or len(text) - pos >= self._lengths[0]:
            return False
        rest = text[pos:]
        # Markers that begin with `rest` come directly behind it in the order.
        place = bisect_right(self._sorted_markers, rest)
        return any(m.startswith(rest) for m in self._sorted_markers[place : place + 1])

    def search(self, text: str, pos: int = 0, *, final: bool = False) -> Hit | None:
        """The first marker at or after `pos`, complete or still possible."""
        for first in self._first_pattern.finditer(text, pos):
            hit = self.at(text, first.start(), final=final)
            if hit is not None:
                return hit
        return None


class StopMatcher:
    """Cuts text at the first stop string, even if it arrives in pieces.

    The string that is complete first wins; of several with the same end, the longest. Memory is
    linear in the strings' lengths, time in the text's.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = [_Prefix(s) for s in dict.fromkeys(stops) if s]
        self._initials = frozenset(stop.text[0] for stop in self._stops)
        self._held = ""
        self.hit: str | None = None

    def feed(self, text: str) -> str:
        """The text that may be shown by now; once `hit` is set, the last part of it."""
        if self.hit is not None:
            return ""
        if not self._held and self._initials.isdisjoint(text):
            return text  # no stop string begins in it
        held_and_new = self._held + text
        for end in range(len(self._held) + 1, len(held_and_new) + 1):
            hits = [s.text for s in self._stops if s.follow(held_and_new[end - 1])]
            if hits:
                self.hit = max(hits, key=len)
                self._held = ""
                return held_and_new[: end - len(self.hit)]
        # The longest beginning of a stop string at the end may go on in the next piece.
        certain = len(held_and_new) - max(stop.length for stop in self._stops)
        self._held = held_and_new[certain:]
        return held_and_new[:certain]

    def finish(self) -> str:
        """The held text, if no more text follows."""
        rest, self._held = self._held, ""
        return rest


class _Prefix:
    """The longest beginning of a text, `length` characters, that ends the input so far.

    This is Knuth, Morris and Pratt's automaton; its table grows on demand.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = 0
        self._borders = [0, 0]
        """For each length of a beginning, the length of the longest other one that ends it."""

    def follow(self, character: str) -> bool:
        """Read a character; returns whether the input now ends with the whole text."""
        self.length = self._next(self.length, character)
        if self.length == len(self._borders):  # the table ends here: so long a beginning is new
            border = self._next(self._borders[-1], self.text[self.length - 1])
            self._borders.append(border)
        return self.length == len(self.text)

    def _next(self, length: int, character: str) -> int:
        """How long the beginning is after this character, if it was `length` before."""
        while length and (length == len(self.text) or self.text[length] != character):
            length = self._borders[length]
        return length + (self.text[length] == character)
