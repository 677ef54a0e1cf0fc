"""The results and changes of a session, kept so that the user can read them whole."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

MAX_RESULTS = 200
MAX_CHARACTERS = 4_000_000
"""The maximum of all kept texts together."""

MAX_TEXT = 1_000_000
CUT = "\n[cut here: {count} more characters]"


@dataclass(frozen=True, slots=True)
class FullResult:
    """A result with the line of its call."""

    title: str
    text: str


class ResultLog:
    """The newest results, the oldest first."""

    def __init__(self) -> None:
        self._results: deque[FullResult] = deque()
        self._characters = 0

    @property
    def all(self) -> Sequence[FullResult]:
        """All kept results."""
        return tuple(self._results)

    def add(self, title: str, *texts: str) -> None:
        """Keep the texts that are not empty, one below the other."""
        text = "\n".join(part.rstrip("\n") for part in texts if part.strip("\n"))
        if not text:
            return
        if len(text) > MAX_TEXT:
            text = text[:MAX_TEXT] + CUT.format(count=len(text) - MAX_TEXT)
        self._results.append(FullResult(title, text))
        self._characters += len(text)
        while len(self._results) > MAX_RESULTS or self._characters > MAX_CHARACTERS:
            self._characters -= len(self._results.popleft().text)
