"""What the parser can be in the middle of."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from shepherd.backends.output.calls.catalog import FoundCall
from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.text import TextSink
from shepherd.events import CallbackEvent

_LONG = 4096
_MAX_LONG_FAILURES = 32
_MAX_PROBLEMS = 3


class Mode(ABC):
    """One state of the parser: it takes text until another mode takes over."""

    @abstractmethod
    def feed(self, text: str) -> str:
        """Take text; what is returned belongs to the mode that took over."""

    @abstractmethod
    def finish(self, *, truncated: bool) -> str:
        """Let go of what is held, as no more text follows; may return text as `feed` does."""


class Resumable(Mode):
    """A mode that can be returned to."""

    @abstractmethod
    def resume(self, *, line_start: bool, after_call: bool, newlines: int) -> None:
        """Start over behind something else; see `Machine.resume`."""


class Machine:
    """What the modes share: where text and calls go, and who is next."""

    def __init__(self, separator: str) -> None:
        self.sink = TextSink()
        self.separator = separator
        self.calls: list[FoundCall] = []
        self.problems: list[str] = []
        self._long_failures = 0
        self.mode: Mode
        self.prose: Resumable
        self.anywhere: MarkerSet  # what means something in the middle of a line

    def may_reread(self, text: str) -> bool:
        """Whether `text`, which turned out not to be a call, may be searched for another one.

        An output that keeps failing at length may not, or the cost would grow with its square.
        """
        self._long_failures += len(text) > _LONG
        return len(text) <= _LONG or self._long_failures <= _MAX_LONG_FAILURES

    def note(self, problem: str) -> None:
        """Remember why something that was meant as a call is none; "" says nothing."""
        known = {p.partition(" (")[0] for p in self.problems}
        if problem and problem.partition(" (")[0] not in known and len(known) < _MAX_PROBLEMS:
            self.problems.append(problem)

    def accept(self, calls: Iterable[FoundCall], text: str) -> None:
        """Take `calls`; `text` is content that stood before them."""
        self.sink.put(CallbackEvent.CONTENT, text)
        self.calls.extend(calls)
        self.resume(after_call=True)

    def resume(
        self, *, line_start: bool = False, after_call: bool = False, newlines: int = 0
    ) -> None:
        """Go back to ordinary text.

        `line_start`: it begins a line; `after_call`: blanks and orphaned closing tags are syntax;
        `newlines`: how many newlines at its start are.
        """
        self.prose.resume(line_start=line_start, after_call=after_call, newlines=newlines)
        self.mode = self.prose
