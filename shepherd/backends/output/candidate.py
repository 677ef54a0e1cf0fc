"""Something that may be a call."""

from shepherd.backends.output.calls.reader import CallReader, Verdict
from shepherd.backends.output.modes import Lead, Machine, Mode
from shepherd.events import CallbackEvent


def without_separator(machine: Machine, lead: Lead) -> str:
    """The blank text before a call, less what the template writes there itself."""
    if lead.behind_call or not machine.sink.has_content:
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
        if self._lead.behind_call and at_end and not verdict.text.strip() and not verdict.rest:
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
