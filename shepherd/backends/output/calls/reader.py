"""What every reader of a call is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from shepherd.backends.output.calls.catalog import FoundCall


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a candidate turned out to be: `calls`, or plain `text` if there are none.

    `text` is what was read behind the marker; `rest` belongs to neither and is to be read afresh.
    `problem` says what is wrong with what was meant as a call.
    """

    text: str
    calls: tuple[FoundCall, ...] = ()
    rest: str = ""
    problem: str = ""


class Attempts:
    """Keeps a body from being parsed at every closing tag that one of its values contains.

    A second attempt is worth it only if a tag of another kind was read since the last.
    """

    def __init__(self) -> None:
        self._news = True

    def see(self, text: str) -> None:
        """Take note of text between closing tags."""
        self._news = self._news or "<" in text

    def worth_it(self) -> bool:
        news, self._news = self._news, False
        return news


class CallReader(ABC):
    """Reads one candidate from behind its marker on, until it is known what it is.

    The verdict is a function of the text alone, however it was cut.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._pending: str = ""

    @abstractmethod
    def feed(self, text: str) -> Verdict | None:
        """Take more text; None while it can still be a call."""

    @abstractmethod
    def finish(self, *, truncated: bool) -> Verdict:
        """Decide without more text; of `truncated` output only what is complete counts."""

    @property
    def _read(self) -> str:
        return "".join(self._parts)

    def _use(self, length: int) -> None:
        self._parts.append(self._pending[:length])
        self._pending = self._pending[length:]

    def _accept(self, calls: tuple[FoundCall, ...]) -> Verdict:
        return Verdict(self._read, calls, self._pending)

    def _reject(self, problem: str = "") -> Verdict:
        return Verdict(self._read, (), self._pending, problem)
