"""Which tokens' text came out as content."""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from shepherd.backends.output.text import TextEvent
from shepherd.events import CallbackEvent
from shepherd.logprobs import TokenLogprob


@dataclass(slots=True)
class _Pending:
    token: TokenLogprob
    start: int
    end: int
    told: bool = False

    @property
    def characters(self) -> range:
        """A token that is only the beginning of a character belongs to that character."""
        return range(self.start, max(self.end, self.start + 1))


class ShownTokens:
    """Looks for the events' text in the tokens' text.

    The output filter takes text out and holds text back, but keeps its order: what comes out last
    ends near the end of what went in. So tokens of reasoning, of calls and of a stop string are
    found out, those that are content only in part count as content.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: list[_Pending] = []
        self._text = ""

    def add(self, token: TokenLogprob) -> None:
        """Take the next token of the answer, before its text is fed to the filter."""
        start = len(self._text)
        self._text += self._decoder.decode(token.piece)
        self._pending.append(_Pending(token, start, len(self._text)))

    def finish(self) -> None:
        """No more tokens follow; the last may be a part of a character."""
        self._text += self._decoder.decode(b"", final=True)
        if self._pending:
            self._pending[-1].end = len(self._text)

    def shown(self, events: Iterable[TextEvent]) -> list[TokenLogprob]:
        """The tokens whose text is in these events' content, each told once."""
        content: list[TokenLogprob] = []
        for thinking, run in groupby(events, lambda e: e.event is CallbackEvent.THINKING):
            places = self._places("".join(event.text for event in run))
            if not thinking:
                content += self._tell(frozenset(places))
            if places:
                self._forget(places[-1] + 1)
        return content

    def _tell(self, places: frozenset[int]) -> list[TokenLogprob]:
        told = [p for p in self._pending if not p.told and not places.isdisjoint(p.characters)]
        for pending in told:
            pending.told = True
        return [pending.token for pending in told]

    def _places(self, text: str) -> list[int]:
        """Where the characters of `text` stand, in order; those that are nowhere are left out."""
        start = 0 if self._text.startswith(text) else self._text.rfind(text)
        if start >= 0:
            return list(range(start, start + len(text)))
        places: list[int] = []
        end = len(self._text)
        for character in reversed(text):
            place = self._text.rfind(character, 0, end)
            if place >= 0:
                places.append(place)
                end = place
        return places[::-1]

    def _forget(self, end: int) -> None:
        """Leave behind what is settled."""
        self._text = self._text[end:]
        self._pending = [p for p in self._pending if p.characters.stop > end]
        for pending in self._pending:
            pending.start = max(0, pending.start - end)
            pending.end = max(0, pending.end - end)
