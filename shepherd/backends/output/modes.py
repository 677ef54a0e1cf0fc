"""The states of the parser: ordinary text up to a marker, and text that may be a call."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from shepherd.backends.output.catalog import ParsedCall, ToolCatalog
from shepherd.backends.output.engine import CallReader, Verdict
from shepherd.backends.output.markers import Hit, MarkerSet
from shepherd.backends.output.notation import Notation
from shepherd.backends.output.style import OutputStyle
from shepherd.backends.output.text import TextSink
from shepherd.events import CallbackEvent

_LONG = 4096
_MAX_LONG_FAILURES = 32
"""So many candidates of more than `_LONG` characters are searched again after they failed."""

_MAX_PROBLEMS = 3

_MAX_LEAD = 256
_LEAD = re.compile(rf"[ \t\r\n]{{0,{_MAX_LEAD}}}")


class Mode(ABC):
    """One state of the parser; it reads text until another mode takes over."""

    @abstractmethod
    def feed(self, text: str) -> str:
        """Read text; the result is the unread rest, for the mode that takes over."""

    @abstractmethod
    def finish(self, *, truncated: bool) -> str:
        """Release the held text, because no more follows; may return text as `feed` does."""


class HoldingMode(Mode):
    """A mode that holds the end of its text back while more text must decide about it."""

    _held = ""

    @abstractmethod
    def _read(self, text: str, *, final: bool) -> str:
        """Read text with what was held before; as `feed`. Nothing follows if it is `final`."""

    def feed(self, text: str) -> str:
        """Read text behind what was held, which `_read` may hold again."""
        held, self._held = self._held, ""
        return self._read(held + text, final=False)

    def finish(self, *, truncated: bool) -> str:
        """Read what was held, which can no longer become anything else."""
        held, self._held = self._held, ""
        return self._read(held, final=True)


class Lead(NamedTuple):
    """The whitespace directly before a marker, and whether a call precedes it."""

    text: str
    after_call: bool


Opener = Callable[["Machine", Lead, str], Mode]
"""`opener(machine, lead, marker)` returns the mode that continues after `marker`."""


class Grammar:
    """The markers in the output of a style, for tools of certain names.

    `anywhere` markers count in the middle of a line too, all others only at its start. `calls` are
    those of `anywhere` that begin a call.
    """

    def __init__(
        self,
        style: OutputStyle,
        anywhere: Mapping[str, Opener],
        at_line: Mapping[str, Opener],
        calls: Mapping[str, tuple[Notation, ...]],
        orphans: Collection[str],
    ) -> None:
        """`orphans` are ignored after a call."""
        self.style = style
        self.calls = calls
        self.openers = {**at_line, **anywhere}
        self.anywhere = MarkerSet(anywhere)
        self.at_line = MarkerSet(self.openers)
        self.after_call = MarkerSet({*self.openers, *orphans})
        self.after_drafted_call = MarkerSet({*calls, *orphans})
        """What may follow a call that ends the reasoning."""
        characters = re.escape("\n" + "".join(self.anywhere.first_characters))
        self.trigger = re.compile(f"[{characters}]")
        """The characters at which the middle of a line may end."""


class Machine:
    """The state that modes share: the destination of text and calls, and the current mode."""

    def __init__(self, grammar: Grammar, catalog: ToolCatalog, *, rewinds: bool = False) -> None:
        """`rewinds`: a call that went wrong stops the parser, until it is written again."""
        self.grammar = grammar
        self.catalog = catalog
        self.sink = TextSink()
        self.calls: list[ParsedCall] = []
        self.problems: list[str] = []
        self.dropped = ""
        """The text of a call that went wrong, at which the parser has stopped."""
        self._rewinds = rewinds
        self.has_open_message = False
        """Whether a harmony message is open."""
        self._long_failures = 0
        self.prose = Prose(self)
        self.mode: Mode = self.prose

    def stops_at(self, problem: str, text: str) -> bool:
        """Whether the parser stops at this text, because the problem of a call is in it."""
        if not (problem and self._rewinds) or self.calls:
            return False
        self.note(problem)
        self.dropped = text
        return True

    def go_on(self, *, line_start: bool) -> None:
        """Read on behind a call that went wrong, which is not dropped again."""
        self._rewinds, self.dropped = False, ""
        self.problems.clear()
        self.resume(line_start=line_start)

    def may_reread(self, text: str) -> bool:
        """Whether `text`, which is not a call, may be searched for another one.

        Repeated long failures disable this, because the cost would grow quadratically.
        """
        if len(text) <= _LONG:
            return True
        self._long_failures += 1
        return self._long_failures <= _MAX_LONG_FAILURES

    def note(self, problem: str) -> None:
        """Note why an intended call is not valid; "" is ignored.

        Problems that differ only in the details behind " (" count once.
        """
        without_details = {known.partition(" (")[0] for known in self.problems}
        is_new = problem.partition(" (")[0] not in without_details
        if problem and is_new and len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)

    def accept(self, calls: Iterable[ParsedCall], text: str = "") -> None:
        """Add `calls`; `text` is the content before them."""
        self.sink.put(CallbackEvent.CONTENT, text)
        self.calls.extend(calls)
        self.resume(after_call=True)

    def resume(
        self, *, line_start: bool = False, after_call: bool = False, newlines: int = 0
    ) -> None:
        """Return to ordinary text.

        `line_start`: it begins a line. `after_call`: whitespace and orphaned closing tags are
        syntax. `newlines`: the number of newlines at its start.
        """
        self.prose.resume(line_start=line_start, after_call=after_call, newlines=newlines)
        self.mode = self.prose

    def end(self) -> None:
        """Let go of the modes, which hold this machine: no more text follows."""
        del self.mode, self.prose


def without_separator(machine: Machine, lead: Lead) -> str:
    """The whitespace before a call, without the part that the template itself writes."""
    if lead.after_call or not machine.sink.has_content:
        return ""
    separator = machine.grammar.style.separator
    if lead.text.endswith(separator):
        return lead.text.removesuffix(separator)
    # An indent behind the separator belongs to the call too.
    return lead.text.rstrip(" \t\r").removesuffix(separator)


class Candidate(Mode):
    """Text that is held while a reader decides whether it is a call.

    If it is not a call, only the marker is certain to be text. The following text is parsed again,
    because a call may begin in it.
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
        """Take the calls, or show the text; returns what must be read again."""
        problem = verdict.problem or "; ".join(map(self._machine.catalog.misfit, verdict.calls))
        candidate = self._lead.text + self._marker + verdict.text + verdict.rest
        if self._machine.stops_at(problem.strip("; "), candidate):
            return ""
        if verdict.calls:
            before = without_separator(self._machine, self._lead)
            self._machine.accept(verdict.calls, before)
            return verdict.rest
        return self._reject(verdict, at_end=at_end)

    def _reject(self, verdict: Verdict, *, at_end: bool) -> str:
        """Show what is certain to be text; returns what must be read again."""
        has_text = verdict.text.strip() or verdict.rest
        if self._lead.after_call and at_end and not has_text:
            return ""  # some models end a call with another opening tag
        self._machine.note(verdict.problem)
        self._put(self._lead.text + self._marker)
        self._machine.resume()
        if self._machine.may_reread(verdict.text):
            return verdict.text + verdict.rest
        self._put(verdict.text)
        return verdict.rest

    def _put(self, text: str) -> None:
        self._machine.sink.put(CallbackEvent.CONTENT, text)


class Prose(HoldingMode):
    """Text up to the next marker.

    It holds back only text that may still become a marker, with the line break and whitespace
    before it. A marker in the middle of a line counts unless a backtick precedes it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._grammar = machine.grammar
        self._at_line_start = True
        self._after_call = False
        self._syntax_newlines = 0
        """So many newlines at the start belong to the marker before."""
        self._last_character = ""
        """The last one that was shown."""

    def resume(self, *, line_start: bool, after_call: bool, newlines: int) -> None:
        """Begin again behind what another mode has read; see `Machine.resume`."""
        self._held = self._last_character = ""
        self._at_line_start = line_start or after_call
        self._after_call = after_call
        self._syntax_newlines = newlines

    def feed(self, text: str) -> str:
        """Show text at once if no marker can begin in it, which is the usual case."""
        is_inside_line = not (self._at_line_start or self._held or self._syntax_newlines)
        if not is_inside_line or self._grammar.trigger.search(text):
            return super().feed(text)
        self._put(text)
        return ""

    def _read(self, text: str, *, final: bool) -> str:
        """Show text up to the next marker that counts, and hold what may become one."""
        text = self._without_syntax_newlines(text)
        pos = 0
        while text:
            if self._at_line_start:
                lead_start = pos
                lead = _LEAD.match(text, pos)
                pos = lead.end() if lead else pos
                hit = self._marker_at_line(text, lead_start, pos, final=final)
            else:
                trigger = self._grammar.trigger.search(text, pos)
                if trigger is None:
                    break
                lead_start = pos = trigger.start()
                if text[pos] == "\n":
                    self._at_line_start = True
                    continue
                hit = self._marker_inside(text, pos, final=final)
            if hit is None:
                text, pos = self._pass_over(text, pos)
            elif hit.marker is None:
                self._hold(text, lead_start)
                return ""
            else:
                return self._enter(text, lead_start, hit.start, hit.marker)
        self._put(text)
        return ""

    def _without_syntax_newlines(self, text: str) -> str:
        """The text without the newlines that belong to a closing marker before it."""
        while self._syntax_newlines and text.startswith("\n"):
            text = text[1:]
            self._syntax_newlines -= 1
        if text:
            self._syntax_newlines = 0
        return text

    def _marker_at_line(self, text: str, lead_start: int, pos: int, *, final: bool) -> Hit | None:
        """The marker at `pos`, behind the whitespace from `lead_start` on."""
        if pos - lead_start == _MAX_LEAD:
            return None  # so much whitespace is no indent, and must not be held back
        if pos == len(text):
            return None if final else Hit(pos, None)
        grammar = self._grammar
        markers = grammar.after_call if self._after_call else grammar.at_line
        return markers.at(text, pos, final=final)

    def _marker_inside(self, text: str, pos: int, *, final: bool) -> Hit | None:
        """The marker at `pos`, unless a backtick quotes it."""
        before = text[pos - 1] if pos else self._last_character
        return None if before == "`" else self._grammar.anywhere.at(text, pos, final=final)

    def _pass_over(self, text: str, pos: int) -> tuple[str, int]:
        """The text and the place in it where to go on, if no marker begins at `pos`."""
        if not self._at_line_start:
            return text, pos + 1
        self._at_line_start = False
        if self._after_call:
            self._after_call = False
            # Whitespace behind a call is dropped, unless it stands between two texts.
            if pos == len(text) or not self._machine.sink.has_content:
                return text[pos:], 0
        return text, pos

    def _hold(self, text: str, lead_start: int) -> None:
        """Hold the text from `lead_start` on, which is read again with what follows."""
        self._put(text[:lead_start])
        self._held = text[lead_start:]
        # A newline at the start of the held text begins the line again when it is read again.
        # Behind a call, a marker counts wherever it stands, as at the start of a line.
        begins_line = self._at_line_start and not self._held.startswith("\n")
        self._at_line_start = begins_line or self._after_call

    def _enter(self, text: str, lead_start: int, marker_start: int, marker: str) -> str:
        """Let what the marker begins take over; an orphaned closing tag begins nothing."""
        rest = text[marker_start + len(marker) :]
        opener = self._grammar.openers.get(marker)
        if opener is None:
            self.resume(line_start=True, after_call=True, newlines=0)
            return rest
        self._put(text[:lead_start])
        lead = Lead(text[lead_start:marker_start], self._after_call)
        self._machine.mode = opener(self._machine, lead, marker)
        return rest

    def _put(self, text: str) -> None:
        """Show the text as content."""
        if text:
            self._last_character = text[-1]
            self._machine.sink.put(CallbackEvent.CONTENT, text)
