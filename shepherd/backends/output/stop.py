"""Stop strings: where a generation ends, and what of them may be shown (nothing)."""

from collections.abc import Iterable


class StopMatcher:
    """Cuts text at the first stop string, also when it arrives in pieces.

    The string that is complete first wins; of several that end at one place, the longest. Memory
    is linear in the strings' lengths, time in the text's.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = [_Prefix(s) for s in dict.fromkeys(stops) if s]
        self._initials = frozenset(stop.text[0] for stop in self._stops)
        self._held = ""
        self.hit: str | None = None

    def feed(self, text: str) -> str:
        """The text that may be shown by now; once `hit` is set, the last of it."""
        if self.hit is not None:
            return ""
        if not self._held and self._initials.isdisjoint(text):
            return text
        window = self._held + text
        for end in range(len(self._held) + 1, len(window) + 1):
            hits = [s.text for s in self._stops if s.follow(window[end - 1])]
            if hits:
                self.hit = max(hits, key=len)
                self._held = ""
                return window[: end - len(self.hit)]
        shown = len(window) - max(stop.length for stop in self._stops)
        self._held = window[shown:]
        return window[:shown]

    def finish(self) -> str:
        """The text held back, when no more follows."""
        rest, self._held = self._held, ""
        return rest


class _Prefix:
    """The longest beginning of a text, `length` characters, with which what was read ends.

    This is Knuth, Morris and Pratt's automaton; its table grows as far as it is needed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = 0
        self._borders = [0, 0]
        """For each length of a beginning, the length of the longest other one that ends it."""

    def follow(self, character: str) -> bool:
        """Read a character; whether the whole text ends with it."""
        self.length = self._next(self.length, character)
        if self.length == len(self._borders):
            border = self._next(self._borders[-1], self.text[self.length - 1])
            self._borders.append(border)
        return self.length == len(self.text)

    def _next(self, length: int, character: str) -> int:
        while length and (length == len(self.text) or self.text[length] != character):
            length = self._borders[length]
        return length + (self.text[length] == character)
