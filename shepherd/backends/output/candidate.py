"""Something that may be a call."""

from shepherd.backends.output.calls.reader import CallReader, Verdict
from shepherd.backends.output.modes import Machine, Mode
from shepherd.backends.output.prose import Lead
from shepherd.events import CallbackEvent


class Candidate(Mode):
    """Text held back while a reader decides: a call, or content after all."""

    def __init__(self, machine: Machine, reader: CallReader, lead: Lead, marker: str) -> None:
        self._machine = machine
        self._reader = reader
        self._lead = lead
        self._marker = marker

    def feed(self, text: str) -> str:
        verdict = self._reader.feed(text)
        return "" if verdict is None else self._settle(verdict)

    def finish(self, *, truncated: bool) -> str:
        return self._settle(self._reader.finish(truncated=truncated))

    def _settle(self, verdict: Verdict) -> str:
        if verdict.calls:
            self._machine.calls.extend(verdict.calls)
            self._put(self._without_separator())
            self._machine.resume(after_call=True)
        else:
            text = self._lead.text + self._marker + verdict.text
            self._put(text)
            self._machine.resume(line_start=text.endswith("\n"))
        return verdict.rest

    def _without_separator(self) -> str:
        """The blank text before the call, less what the template writes there itself."""
        if self._lead.behind_call or not self._machine.sink.has_content:
            return ""
        text = self._lead.text.rstrip(" \t\r")
        return text.removesuffix(self._machine.separator)

    def _put(self, text: str) -> None:
        self._machine.sink.put(CallbackEvent.CONTENT, text)
