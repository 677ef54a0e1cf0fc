"""Reasoning between its markers, and the markers around the answer."""

from collections.abc import Collection
from functools import lru_cache

from shepherd.backends.output.catalog import ParsedCall
from shepherd.backends.output.engine import CallReader, Verdict
from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.modes import Grammar, HoldingMode, Lead, Machine, Mode, Opener
from shepherd.backends.output.style import ThinkMarkers
from shepherd.events import CallbackEvent


class Thinking(HoldingMode):
    """Everything up to the closing marker is reasoning, including drafts of calls.

    Only a call at the end of the output counts: the model forgot to close its reasoning. `newline`:
    whether one newline at the start still belongs to the opening marker.
    """

    def __init__(self, machine: Machine, markers: ThinkMarkers, *, newline: bool = True) -> None:
        self._machine = machine
        self._newlines_after_close = markers.after
        self._closes = (markers.close, "\n" + markers.close)
        self._end_markers = _ends(machine.grammar, self._closes)
        self._may_skip_newline = newline
        self._has_text = False

    def _read(self, text: str, *, final: bool) -> str:
        """Show reasoning up to a closing marker, or up to a call at the start of a line."""
        if not text:
            return ""
        hit = self._end_markers.search(text, final=final)
        # A newline that begins the closing marker is that marker's, not the opening one's.
        begins_marker = hit is not None and hit.start == 0
        if self._may_skip_newline and text[0] == "\n" and not begins_marker:
            self._may_skip_newline = False
            return self._read(text[1:], final=final)
        if hit is None:
            self._put(text)
            return ""
        self._put(text[: hit.start])
        if hit.marker is None:
            self._held = text[hit.start :]
            return ""
        if hit.marker in self._closes:
            self._machine.resume(line_start=True, newlines=self._newlines_after_close)
        else:
            self._may_skip_newline = False
            self._machine.mode = DraftedCall(self._machine, self, hit.marker)
        return text[hit.start + len(hit.marker) :]

    def _put(self, text: str) -> None:
        """Show reasoning, and part it from an earlier section."""
        if not text:
            return
        if not self._has_text:
            self._machine.sink.part_reasoning()
        self._has_text, self._may_skip_newline = True, False
        self._machine.sink.put(CallbackEvent.THINKING, text)


class DraftedCall(Mode):
    """A call in the middle of reasoning: a call if nothing follows, else part of the reasoning."""

    def __init__(self, machine: Machine, thinking: Thinking, marker: str) -> None:
        self._machine = machine
        self._thinking = thinking
        self._draft_text = marker
        """All text since the first marker: reasoning, if these are not calls."""
        self._reader = self._open_reader(marker.removeprefix("\n"))
        """None behind a call."""
        self._calls: tuple[ParsedCall, ...] = ()
        self._held = ""

    def feed(self, text: str) -> str:
        """Read a call, or what stands behind one."""
        if self._reader is None:
            return self._read_behind_call(self._held + text)
        verdict = self._reader.feed(text)
        return "" if verdict is None else self._settle(verdict)

    def finish(self, *, truncated: bool) -> str:
        """Accept the calls, because nothing followed them."""
        if self._reader is not None:
            rest = self._settle(self._reader.finish(truncated=truncated))
            if rest or self._machine.mode is not self:  # it was no call, or text follows it
                return rest
        self._machine.accept(self._calls)
        return ""

    def _open_reader(self, marker: str) -> CallReader | None:
        """The reader of the text after `marker`, if that begins a call."""
        notations = self._machine.grammar.calls.get(marker)
        if notations is None:
            return None
        return CallReader(self._machine.catalog, marker, notations)

    def _settle(self, verdict: Verdict) -> str:
        """Take the verdict about a call; without a call all of it was reasoning."""
        if not verdict.calls and self._machine.may_reread(verdict.text):
            return self._show_as_thinking(verdict.text + verdict.rest)
        self._draft_text += verdict.text
        if not verdict.calls:
            return self._show_as_thinking(verdict.rest)
        self._calls += verdict.calls
        self._reader = None
        return verdict.rest

    def _read_behind_call(self, text: str) -> str:
        """Read another call, or text, with which all of it was only reasoning."""
        self._held = ""
        hit = self._machine.grammar.after_drafted_call.after_space(text)
        if hit is None:
            return self._show_as_thinking(text)
        if hit.marker is None:
            self._held = text
            return ""
        self._reader = self._open_reader(hit.marker)
        end = hit.start + len(hit.marker)
        self._draft_text += text[:end]
        return text[end:]

    def _show_as_thinking(self, rest: str) -> str:
        """Show the draft, and let the reasoning go on with `rest`."""
        self._machine.sink.put(CallbackEvent.THINKING, self._draft_text)
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


def hidden_before_content(newlines: int, machine: Machine, lead: Lead, marker: str) -> Mode:
    """After a marker that is hidden, with so many newlines behind it, unless content precedes it.

    Such as the opening marker of an answer, or the closing one of reasoning that was never opened.
    """
    if machine.sink.has_content:
        machine.sink.put(CallbackEvent.CONTENT, lead.text + marker)
        machine.resume()
    else:
        machine.resume(line_start=True, newlines=newlines)
    return machine.mode


def answer_closing(closes: Collection[str], calls: Collection[str]) -> Opener:
    """The handler of a closing marker: it is hidden, unless text follows."""
    followers = MarkerSet((*closes, *calls))
    return lambda machine, lead, marker: AnswerEnd(machine, lead, marker, followers)


class AnswerEnd(HoldingMode):
    """After a closing marker, which counts as text if anything except calls follows."""

    def __init__(self, machine: Machine, lead: Lead, marker: str, followers: MarkerSet) -> None:
        """`followers` are the markers that may follow."""
        self._machine = machine
        self._lead = lead
        self._marker = marker
        self._followers = followers

    def _read(self, text: str, *, final: bool) -> str:
        """Decide about the marker by what follows it."""
        hit = self._followers.after_space(text)
        if hit is None:
            self._machine.sink.put(CallbackEvent.CONTENT, self._lead.text + self._marker)
            self._machine.resume()
            return text
        if hit.marker is None and not final:
            self._held = text
            return ""
        if not self._lead.after_call and self._machine.sink.has_content:
            # One newline before the marker belongs to it.
            self._machine.sink.put(CallbackEvent.CONTENT, self._lead.text.removesuffix("\n"))
        self._machine.resume(after_call=True)
        return text[hit.start :]
