"""Reasoning between its markers."""

from shepherd.backends.output.markers import MarkerSet
from shepherd.backends.output.modes import Machine, Mode
from shepherd.backends.output.style import ThinkMarkers
from shepherd.events import CallbackEvent


class Thinking(Mode):
    """Everything up to the closing marker is reasoning.

    `newline`: whether one newline at the start still belongs to the opening marker.
    """

    def __init__(self, machine: Machine, markers: ThinkMarkers, *, newline: bool = True) -> None:
        self._machine = machine
        self._after = markers.after
        self._close = MarkerSet.of(markers.close, "\n" + markers.close)
        self._newline = newline
        self._held = ""

    def feed(self, text: str) -> str:
        return self._read(self._held + text, final=False)

    def finish(self, *, truncated: bool) -> str:
        return self._read(self._held, final=True)

    def _read(self, text: str, *, final: bool) -> str:
        self._held = ""
        if not text:
            return ""
        hit = self._close.search(text, final=final)
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
        self._machine.resume(line_start=True, newlines=self._after)
        return text[hit.start + len(hit.marker) :]

    def _put(self, text: str) -> None:
        if text:
            self._newline = False
            self._machine.sink.put(CallbackEvent.THINKING, text)
