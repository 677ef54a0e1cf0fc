"""Markers around the answer itself, which are no part of it."""

from collections.abc import Collection

from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.modes import Lead, Machine, Mode, Opener
from shepherd.events import CallbackEvent


def answer_opening(machine: Machine, lead: Lead, marker: str) -> Mode:
    """Behind an opening marker: nothing is shown of it, unless it stands behind content."""
    if machine.sink.has_content:
        machine.sink.put(CallbackEvent.CONTENT, lead.text + marker)
        machine.resume()
    else:
        machine.resume(line_start=True, newlines=1)
    return machine.mode


def answer_closing(closes: Collection[str], calls: Collection[str]) -> Opener:
    """What a closing marker does: nothing is shown of it, unless text follows."""
    behind = MarkerSet((*closes, *calls))
    return lambda machine, lead, marker: AnswerEnd(machine, lead, marker, behind)


class AnswerEnd(Mode):
    """Behind a closing marker, which is text after all if anything but calls follows it."""

    def __init__(self, machine: Machine, lead: Lead, marker: str, behind: MarkerSet) -> None:
        self._machine = machine
        self._lead = lead
        self._marker = marker
        self._behind = behind
        self._held = ""

    def feed(self, text: str) -> str:
        text = self._held + text
        start = len(text) - len(text.lstrip())
        hit = self._behind.at(text, start) if start < len(text) else None
        if start == len(text) or (hit is not None and hit.marker is None):
            self._held = text
            return ""
        if hit is None:
            self._machine.sink.put(CallbackEvent.CONTENT, self._lead.text + self._marker)
            self._machine.resume()
            return text
        self._put_lead()
        self._machine.resume(after_call=True)
        return text[start:]

    def finish(self, *, truncated: bool) -> str:
        self._put_lead()
        self._machine.resume(after_call=True)
        return self._held.lstrip()

    def _put_lead(self) -> None:
        if not self._lead.behind_call and self._machine.sink.has_content:
            self._machine.sink.put(CallbackEvent.CONTENT, self._lead.text.removesuffix("\n"))
