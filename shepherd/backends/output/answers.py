"""Markers around the answer itself, which are no part of it."""

from collections.abc import Collection

from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.modes import Machine, Mode
from shepherd.backends.output.prose import Lead, Opener
from shepherd.backends.output.style import AnswerMarkers
from shepherd.events import CallbackEvent


def answer_opening(machine: Machine) -> Opener:
    """What an opening marker does: nothing is shown of it, unless it stands behind content."""

    def drop_or_show(lead: Lead, marker: str) -> Mode:
        if machine.sink.has_content:
            machine.sink.put(CallbackEvent.CONTENT, lead.text + marker)
            machine.resume()
        else:
            machine.resume(line_start=True, newlines=1)
        return machine.mode

    return drop_or_show


def answer_closing(
    machine: Machine, answers: Collection[AnswerMarkers], calls: Collection[str]
) -> Opener:
    """What a closing marker does: nothing is shown of it, unless text follows."""
    behind = MarkerSet.of(*(a.close for a in answers), *calls)
    return lambda lead, marker: AnswerEnd(machine, lead, marker, behind)


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
