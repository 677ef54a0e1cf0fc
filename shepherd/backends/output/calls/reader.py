"""Base classes of the readers of calls."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from shepherd.backends.output.calls.catalog import ParsedCall
from shepherd.backends.output.calls.xml import Scope
from shepherd.backends.output.markers import MarkerSet

_MAX_HEAD = 256


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a candidate: `calls`, or plain `text` if there are none.

    `text` is the text after the marker. `rest` belongs to neither and must be parsed again.
    `problem` says why an intended call is not valid.
    """

    text: str
    calls: tuple[ParsedCall, ...] = ()
    rest: str = ""
    problem: str = ""


class Attempts:
    """Limits the attempts to parse a body whose values contain closing tags.

    A second attempt is useful only if a tag of another kind was read since the last.
    """

    def __init__(self) -> None:
        self._news = True

    def see(self, text: str) -> None:
        """Note text between closing tags."""
        self._news = self._news or "<" in text

    def worth_it(self) -> bool:
        news, self._news = self._news, False
        return news


class CallReader(ABC):
    """Reads one candidate after its marker, until it can decide.

    The verdict depends only on the text, not on its pieces.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._pending: str = ""

    @abstractmethod
    def feed(self, text: str) -> Verdict | None:
        """Read more text; None while it can still be a call."""

    @abstractmethod
    def finish(self, *, truncated: bool) -> Verdict:
        """Decide without more text; in `truncated` output only complete calls count."""

    @property
    def _read(self) -> str:
        return "".join(self._parts)

    def _use(self, length: int) -> None:
        self._parts.append(self._pending[:length])
        self._pending = self._pending[length:]

    def _accept(self, calls: tuple[ParsedCall, ...]) -> Verdict:
        return Verdict(self._read, calls, self._pending)

    def _reject(self, problem: str = "") -> Verdict:
        return Verdict(self._read, (), self._pending, problem)


class ClosingReader(CallReader):
    """Reads up to a `closing` tag that completes the call.

    One of `starts` or the closing tag must follow the opening tag.
    """

    def __init__(self, closing: str, starts: Iterable[str]) -> None:
        super().__init__()
        self._closing = MarkerSet.of(closing)
        self._starts = MarkerSet.of(closing, *starts)
        self._started = False
        self._tried = Attempts()

    @abstractmethod
    def _parse(self, scope: Scope) -> tuple[ParsedCall, ...] | None:
        """The calls in the text so far; empty if there are none, None if more text is needed."""

    def _problem(self, text: str) -> str:
        """The problem of `text`, which is not a valid call."""
        return ""

    def feed(self, text: str) -> Verdict | None:
        self._pending += text
        if not self._started:
            start = len(self._pending) - len(self._pending.lstrip())
            hit = self._starts.at(self._pending, start) if start < len(self._pending) else None
            if start > _MAX_HEAD or (hit is None and start < len(self._pending)):
                return self._reject()
            if hit is None or hit.marker is None:
                return None
            self._started = True
        return self._search()

    def finish(self, *, truncated: bool) -> Verdict:
        self._use(len(self._pending))
        if truncated or not self._started:
            return self._reject()
        calls = self._parse(Scope(final=True))
        return self._accept(calls) if calls else self._reject(self._problem(self._read))

    def _search(self) -> Verdict | None:
        while hit := self._closing.search(self._pending):
            self._tried.see(self._pending[: hit.start])
            if hit.marker is None:
                self._use(hit.start)
                return None
            self._use(hit.start + len(hit.marker))
            calls = self._parse(Scope()) if self._tried.worth_it() else None
            if calls is not None:
                return self._accept(calls) if calls else self._reject(self._problem(self._read))
        self._tried.see(self._pending)
        self._use(len(self._pending))
        return None
