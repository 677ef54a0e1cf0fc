"""Finding literal markers in text that arrives in pieces."""

import re
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
        ordered = sorted(markers, key=len, reverse=True)
        self.first = frozenset(m[0] for m in ordered)
        self._longest = len(ordered[0]) if ordered else 0
        self._prefixes = frozenset(m[:n] for m in ordered for n in range(1, len(m)))
        never = "(?!)"
        self._match = re.compile("|".join(map(re.escape, ordered)) or never)
        self._start = re.compile("|".join(map(re.escape, sorted(self.first))) or never)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(*markers: str) -> "MarkerSet":
        """The set of `markers`, made once for all who ask for the same ones."""
        return MarkerSet(markers)

    def at(self, text: str, pos: int, *, final: bool = False) -> Hit | None:
        """The marker that begins at `pos`, if any can."""
        if not final and len(text) - pos < self._longest and text[pos:] in self._prefixes:
            return Hit(pos, None)
        found = self._match.match(text, pos)
        return Hit(pos, found.group()) if found else None

    def search(self, text: str, pos: int = 0, *, final: bool = False) -> Hit | None:
        """The first marker at or after `pos`, complete or still possible."""
        for found in self._start.finditer(text, pos):
            hit = self.at(text, found.start(), final=final)
            if hit is not None:
                return hit
        return None
