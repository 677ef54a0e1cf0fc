"""The states of the parser, and the state for text that may be a call."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shepherd.backends.output.calls.catalog import ParsedCall, ToolCatalog
from shepherd.backends.output.calls.reader import CallReader, Verdict
from shepherd.backends.output.calls.table import ReaderFactory
from shepherd.backends.output.style import OutputStyle
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


class Lead(NamedTuple):
    """The blank text right before a marker, and whether a call stands before that."""

    text: str
    after_call: bool


Opener = Callable[["Machine", Lead, str], Mode]
"""`opener(machine, lead, marker)`: the mode that goes on behind `marker`."""


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """What means something in the output of a style when tools of certain names are offered.

    `anywhere` markers count in the middle of a line, `at_line` ones only at its start. `calls`
    are those of `anywhere` that begin a call. `orphans` mean nothing behind a call.
    """

    style: OutputStyle
    anywhere: Mapping[str, Opener]
    at_line: Mapping[str, Opener]
    calls: Mapping[str, ReaderFactory]
    orphans: frozenset[str]


class Machine:
    """What the modes share: where text and calls go, and who is next."""

    def __init__(self, grammar: Grammar, catalog: ToolCatalog) -> None:
        self.grammar = grammar
        self.catalog = catalog
        self.sink = TextSink()
        self.calls: list[ParsedCall] = []
        self.problems: list[str] = []
        self.in_message = False  # whether a message of harmony is open
        self._long_failures = 0
        self.mode: Mode
        self.prose: Resumable

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

    def accept(self, calls: Iterable[ParsedCall], text: str) -> None:
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


def without_separator(machine: Machine, lead: Lead) -> str:
    """The blank text before a call, less what the template writes there itself."""
    if lead.after_call or not machine.sink.has_content:
        return ""
    separator = machine.grammar.style.separator
    if lead.text.endswith(separator):
        return lead.text.removesuffix(separator)
    return lead.text.rstrip(" \t\r").removesuffix(separator)


class Candidate(Mode):
    """Text held back while a reader decides: a call, or content after all.

    If it is no call, only the marker is certain to be text: what follows is read afresh, as a
    call may begin in it.
    """

    def __init__(self, machine: Machine, reader: CallReader, lead: Lead, marker: str) -> None:
        self._machine = machine
        self._reader = reader
        self._lead = lead
        self._marker = marker

    def feed(self, text: str) -> str:
        verdict = self._reader.feed(text)
        return "" if verdict is None else self._settle(verdict, at_end=False)

    def finish(self, *, truncated: bool) -> str:
        return self._settle(self._reader.finish(truncated=truncated), at_end=True)

    def _settle(self, verdict: Verdict, *, at_end: bool) -> str:
        if verdict.calls:
            before = without_separator(self._machine, self._lead)
            self._machine.accept(verdict.calls, before)
            return verdict.rest
        if self._lead.after_call and at_end and not verdict.text.strip() and not verdict.rest:
            return ""  # a model that opens where it should close
        self._machine.note(verdict.problem)
        self._put(self._lead.text + self._marker)
        self._machine.resume()
        if self._machine.may_reread(verdict.text):
            return verdict.text + verdict.rest
        self._put(verdict.text)
        return verdict.rest

    def _put(self, text: str) -> None:
        self._machine.sink.put(CallbackEvent.CONTENT, text)
