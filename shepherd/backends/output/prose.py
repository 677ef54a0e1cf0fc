"""Ordinary text up to the markers at which something else begins."""

import re
from functools import lru_cache
from typing import NamedTuple

from shepherd.backends.output.markers import Hit, MarkerSet
from shepherd.backends.output.modes import Grammar, Lead, Machine, Opener, Resumable
from shepherd.events import CallbackEvent

_MAX_LEAD = 256
_LEAD = re.compile(rf"[ \t\r\n]{{0,{_MAX_LEAD}}}")


class ProseMarkers(NamedTuple):
    """The markers in the middle of a line, at its start, and after a call."""

    openers: dict[str, Opener]
    anywhere: MarkerSet
    at_line: MarkerSet
    after_call: MarkerSet
    trigger: re.Pattern[str]

    @staticmethod
    @lru_cache(maxsize=32)
    def of(grammar: Grammar) -> "ProseMarkers":
        """The sets for a grammar; equal sets are created once."""
        inside = MarkerSet(grammar.anywhere)
        trigger = re.compile("[" + re.escape("\n" + "".join(inside.first)) + "]")
        openers = {**grammar.at_line, **grammar.anywhere}
        behind = MarkerSet(openers.keys() | grammar.orphans)
        return ProseMarkers(openers, inside, MarkerSet(openers), behind, trigger)


class Prose(Resumable):
    """Text up to the next marker.

    It holds back only text that may still become a marker, with the line break and whitespace
    before it. A marker in the middle of a line counts unless a backtick precedes it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._markers = ProseMarkers.of(machine.grammar)
        self._held = ""
        self._line_start = True
        self._after_call = False
        self._newlines = 0
        self._last = ""

    def resume(self, *, line_start: bool, after_call: bool, newlines: int) -> None:
        self._held = self._last = ""
        self._line_start = line_start or after_call
        self._after_call = after_call
        self._newlines = newlines

    def feed(self, text: str) -> str:
        if self._line_start or self._held or self._newlines or self._markers.trigger.search(text):
            return self._read(self._held + text, final=False)
        self._put(text)
        return ""

    def finish(self, *, truncated: bool) -> str:
        return self._read(self._held, final=True)

    def _read(self, text: str, *, final: bool) -> str:
        text = self._without_newlines(text)
        self._held = ""
        pos = 0
        while text:
            if self._line_start:
                lead, pos = pos, self._behind_lead(text, pos)
                hit = self._marker_at_line(text, lead, pos, final=final)
            else:
                match = self._markers.trigger.search(text, pos)
                if match is None:
                    break
                lead = pos = match.start()
                if text[pos] == "\n":
                    self._line_start = True
                    continue
                hit = self._marker_inside(text, pos, final=final)
            if hit is None:
                text, pos = self._no_marker(text, lead, pos)
            elif hit.marker is None:
                self._hold(text, lead)
                return ""
            else:
                return self._enter(text, lead, hit.start, hit.marker)
        self._put(text)
        return ""

    def _without_newlines(self, text: str) -> str:
        while self._newlines and text.startswith("\n"):
            text = text[1:]
            self._newlines -= 1
        if text:
            self._newlines = 0
        return text

    @staticmethod
    def _behind_lead(text: str, pos: int) -> int:
        match = _LEAD.match(text, pos)
        return match.end() if match else pos

    def _marker_at_line(self, text: str, lead: int, pos: int, *, final: bool) -> Hit | None:
        if pos - lead == _MAX_LEAD:
            return None
        if pos == len(text):
            return None if final else Hit(pos, None)
        markers = self._markers.after_call if self._after_call else self._markers.at_line
        return markers.at(text, pos, final=final)

    def _marker_inside(self, text: str, pos: int, *, final: bool) -> Hit | None:
        quoted = (text[pos - 1] if pos else self._last) == "`"
        return None if quoted else self._markers.anywhere.at(text, pos, final=final)

    def _no_marker(self, text: str, lead: int, pos: int) -> tuple[str, int]:
        if not self._line_start:
            return text, pos + 1
        self._line_start = False
        if self._after_call:
            self._after_call = False
            if pos == len(text) or not self._machine.sink.has_content:
                return text[pos:], 0
        return text, pos

    def _hold(self, text: str, lead: int) -> None:
        self._put(text[:lead])
        self._held = text[lead:]
        self._line_start = self._line_start and not self._held.startswith("\n")
        self._line_start = self._line_start or self._after_call

    def _enter(self, text: str, lead: int, index: int, marker: str) -> str:
        rest = text[index + len(marker) :]
        opener = self._markers.openers.get(marker)
        if opener is None:
            self.resume(line_start=True, after_call=True, newlines=0)
            return rest
        self._put(text[:lead])
        self._machine.mode = opener(self._machine, Lead(text[lead:index], self._after_call), marker)
        return rest

    def _put(self, text: str) -> None:
        if text:
            self._last = text[-1]
            self._machine.sink.put(CallbackEvent.CONTENT, text)
