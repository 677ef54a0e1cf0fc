"""Reasoning between its markers, and the markers around the answer."""

from collections.abc import Collection
from functools import lru_cache

from shepherd.backends.output.catalog import ParsedCall
from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.modes import Grammar, HoldingMode, Lead, Machine, Mode, Opener
from shepherd.backends.output.reader import CallReader, Verdict
from shepherd.backends.output.style import ThinkMarkers
from shepherd.events import CallbackEvent


class Thinking(HoldingMode):
    """Everything up to the closing marker is reasoning, including drafts of calls.

    Only a call at the end of the output counts: the model forgot to close its reasoning. `newline`:
    whether one newline at the start still belongs to the opening marker.
    """

    def __init__(self, machine: Machine, markers: ThinkMarkers, *, newline: bool = True) -> None:
        self._machine = machine
        self._after = markers.after
        self._closes = (markers.close, "\n" + markers.close)
        self._markers = _ends(machine.grammar, self._closes)
        self._newline = newline
        self._begun = False

    def _read(self, text: str, *, final: bool) -> str:
        """Show reasoning up to a closing marker, or up to a call at the start of a line."""
        if not text:
            return ""
        hit = self._markers.search(text, final=final)
        # a newline that begins the closing marker is that marker's, not the opening one's
        if self._newline and text[0] == "\n" and (hit is None or hit.start > 0):
            self._newline = False
            return self._read(text[1:], final=final)
        if hit is None:
            self._put(text)
            return ""
        self._put(text[: hit.start])
        if hit.marker is None:
            self._held = text[hit.start :]
            return ""
        if hit.marker in self._closes:
            self._machine.resume(line_start=True, newlines=self._after)
        else:
            self._newline = False
            self._machine.mode = DraftedCall(self._machine, self, hit.marker)
        return text[hit.start + len(hit.marker) :]

    def _put(self, text: str) -> None:
        if not text:
            return
        if not self._begun:
            self._machine.sink.part_reasoning()
        self._begun, self._newline = True, False
        self._machine.sink.put(CallbackEvent.THINKING, text)


class DraftedCall(Mode):
    """A call in the middle of reasoning: a call if nothing follows, else part of the reasoning."""

    def __init__(self, machine: Machine, thinking: Thinking, marker: str) -> None:
        self._machine = machine
        self._thinking = thinking
        self._raw = marker  # the reasoning's text if these are not calls
        self._reader: CallReader | None = self._open(marker[1:])
        self._calls: tuple[ParsedCall, ...] = ()
        self._held = ""

    def feed(self, text: str) -> str:
        if self._reader is None:
            return self._behind(self._held + text)
        verdict = self._reader.feed(text)
        return "" if verdict is None else self._settle(verdict)

    def finish(self, *, truncated: bool) -> str:
        if self._reader is not None:
            rest = self._settle(self._reader.finish(truncated=truncated))
            if rest or self._machine.mode is not self:
                return rest
        self._machine.accept(self._calls, "")
        return ""

    def _open(self, marker: str) -> CallReader | None:
        """The reader of the text after `marker`, if that begins a call."""
        factory = self._machine.grammar.calls.get(marker)
        return factory(self._machine.catalog, marker) if factory else None

    def _settle(self, verdict: Verdict) -> str:
        """Take the verdict about a call; without a call all of it was reasoning."""
        if not verdict.calls:
            if self._machine.may_reread(verdict.text):
                return self._no_call(verdict.text + verdict.rest)
            self._raw += verdict.text
            return self._no_call(verdict.rest)
        self._calls += verdict.calls
        self._raw += verdict.text
        self._reader = None
        return verdict.rest

    def _behind(self, text: str) -> str:
        """After a call: another one, or text, with which all of it was only reasoning."""
        self._held = ""
        hit = self._machine.grammar.after_drafted_call.after_space(text)
        if hit is None:
            return self._no_call(text)
        if hit.marker is None:
            self._held = text
            return ""
        self._reader = self._open(hit.marker)
        end = hit.start + len(hit.marker)
        self._raw += text[:end]
        return text[end:]

    def _no_call(self, rest: str) -> str:
        self._machine.sink.put(CallbackEvent.THINKING, self._raw)
        self._machine.mode = self._thinking
        return rest


@lru_cache(maxsize=64)
def _ends(grammar: Grammar, closes: tuple[str, ...]) -> MarkerSet:
    """The markers that may end reasoning: `closes`, or a call at the start of a line."""
    return MarkerSet((*closes, *("\n" + marker for marker in grammar.calls)))


def thinking_opening(markers: ThinkMarkers, machine: Machine, lead: Lead, _marker: str) -> Mode:
    """After an opening marker of reasoning."""
    if machine.sink.has_content and not lead.after_call:
        machine.sink.put(CallbackEvent.CONTENT, lead.text)
    return Thinking(machine, markers)


def stray_closing(markers: ThinkMarkers, machine: Machine, lead: Lead, marker: str) -> Mode:
    """After a closing marker without reasoning: it is hidden, unless content precedes it."""
    if machine.sink.has_content:
        machine.sink.put(CallbackEvent.CONTENT, lead.text + marker)
        machine.resume()
    else:
        machine.resume(line_start=True, newlines=markers.after)
    return machine.mode


def answer_opening(machine: Machine, lead: Lead, marker: str) -> Mode:
    """After an opening marker: it is hidden, unless content precedes it."""
    if machine.sink.has_content:
        machine.sink.put(CallbackEvent.CONTENT, lead.text + marker)
        machine.resume()
    else:
        machine.resume(line_start=True, newlines=1)
    return machine.mode


def answer_closing(closes: Collection[str], calls: Collection[str]) -> Opener:
    """The handler of a closing marker: it is hidden, unless text follows."""
    behind = MarkerSet((*closes, *calls))
    return lambda machine, lead, marker: AnswerEnd(machine, lead, marker, behind)


class AnswerEnd(HoldingMode):
    """After a closing marker, which counts as text if anything except calls follows."""

    def __init__(self, machine: Machine, lead: Lead, marker: str, behind: MarkerSet) -> None:
        self._machine = machine
        self._lead = lead
        self._marker = marker
        self._behind = behind

    def _read(self, text: str, *, final: bool) -> str:
        hit = self._behind.after_space(text)
        if hit is None:
            self._machine.sink.put(CallbackEvent.CONTENT, self._lead.text + self._marker)
            self._machine.resume()
            return text
        if hit.marker is None and not final:
            self._held = text
            return ""
        self._put_lead()
        self._machine.resume(after_call=True)
        return text[hit.start :]

    def _put_lead(self) -> None:
        if not self._lead.after_call and self._machine.sink.has_content:
            self._machine.sink.put(CallbackEvent.CONTENT, self._lead.text.removesuffix("\n"))
