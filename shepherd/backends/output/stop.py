"""Stop strings: where a generation ends, and what of them may be shown (nothing)."""

from collections.abc import Iterable


class StopMatcher:
    """Cuts text at the first stop string, also when it arrives in pieces.

    The string that is complete first wins; of several that end at one place, the longest.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(dict.fromkeys(s for s in stops if s))
        self._prefixes = frozenset(s[:n] for s in self._stops for n in range(1, len(s)))
        self._longest = max(map(len, self._stops), default=1)
        self._held = ""
        self.hit: str | None = None

    def feed(self, text: str) -> str:
        """The text that may be shown by now; once `hit` is set, the last of it."""
        if not self._stops:
            return text
        if self.hit is not None:
            return ""
        window = self._held + text
        end = self._first_end(window)
        if end is not None:
            self._held = ""
            return window[:end]
        keep = self._keep(window)
        self._held = window[keep:]
        return window[:keep]

    def finish(self) -> str:
        """The text held back, when no more follows."""
        rest, self._held = self._held, ""
        return rest

    def _first_end(self, window: str) -> int | None:
        found = [(i + len(s), i, s) for s in self._stops if (i := window.find(s)) >= 0]
        if not found:
            return None
        _, start, self.hit = min(found)
        return start

    def _keep(self, window: str) -> int:
        first = max(0, len(window) - self._longest + 1)
        for start in range(first, len(window)):
            if window[start:] in self._prefixes:
                return start
        return len(window)
