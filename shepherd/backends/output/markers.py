"""Finding literal markers in text that arrives in pieces."""

import re
from bisect import bisect_right
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple


class Hit(NamedTuple):
    """What was found at `start`; `marker` None means that only more text can tell."""

    start: int
    marker: str | None


class MarkerSet:
    """A set of literal markers.

    Of markers that begin at one place the longest wins; while a longer one is still possible,
    the answer waits. So the result never depends on how the text was cut.
    """

    def __init__(self, markers: Collection[str]) -> None:
        self._markers = frozenset(markers)
        self._ordered = sorted(self._markers)
        self._lengths = sorted({len(m) for m in self._markers}, reverse=True)
        self.first = frozenset(m[0] for m in self._markers)
        self._start = re.compile("|".join(map(re.escape, sorted(self.first))) or "(?!)")

    @staticmethod
    @lru_cache(maxsize=64)
    def of(*markers: str) -> "MarkerSet":
        """The set of `markers`, made once for all who ask for the same ones."""
        return MarkerSet(markers)

    def at(self, text: str, pos: int, *, final: bool = False) -> Hit | None:
        """The marker that begins at `pos`, if any can."""
        if text[pos : pos + 1] not in self.first:
            return None
        if not final and self._begins_one(text, pos):
            return Hit(pos, None)
        for length in self._lengths:
            marker = text[pos : pos + length]
            if marker in self._markers:
                return Hit(pos, marker)
        return None

    def _begins_one(self, text: str, pos: int) -> bool:
        """Whether the rest of the text is the beginning of a longer marker.

        Looked up in order: a pattern of all names of a thousand tools takes seconds to compile.
        """
        if not self._lengths or len(text) - pos >= self._lengths[0]:
            return False
        rest = text[pos:]
        place = bisect_right(self._ordered, rest)
        return place < len(self._ordered) and self._ordered[place].startswith(rest)

    def search(self, text: str, pos: int = 0, *, final: bool = False) -> Hit | None:
        """The first marker at or after `pos`, complete or still possible."""
        for found in self._start.finditer(text, pos):
            hit = self.at(text, found.start(), final=final)
            if hit is not None:
                return hit
        return None
