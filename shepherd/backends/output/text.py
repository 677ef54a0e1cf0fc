"""The sum of text events, and the tokens that they came from."""

import codecs
from collections.abc import Iterable
from itertools import groupby

from msgspec import Struct

from shepherd.events import CallbackEvent, TextEvent, Thinking, text_event
from shepherd.sampling import TokenLogprob


class TextSink:
    """Collects text in order; neighbours of one kind become one event."""

    def __init__(self) -> None:
        self._pieces: list[tuple[CallbackEvent, str, str]] = []
        self._content: list[str] = []
        self._reasoning: list[str] = []

    def put(self, kind: CallbackEvent, text: str, language: str = "") -> None:
        """Add text of the kind CONTENT, THINKING or CODEBLOCK."""
        if not text:
            return
        (self._reasoning if kind is CallbackEvent.THINKING else self._content).append(text)
        if self._pieces:
            last_kind, last_text, last_language = self._pieces[-1]
            if (last_kind, last_language) == (kind, language):
                self._pieces[-1] = (kind, last_text + text, language)
                return
        self._pieces.append((kind, text, language))

    def take(self) -> list[TextEvent]:
        """The events since the last call."""
        events = [text_event(*piece) for piece in self._pieces]
        self._pieces.clear()
        return events

    def part_reasoning(self) -> None:
        """Begin another section of reasoning, after a blank line."""
        if self._reasoning:
            self.put(CallbackEvent.THINKING, "\n\n")

    @property
    def has_content(self) -> bool:
        return bool(self._content)

    @property
    def content(self) -> str:
        return "".join(self._content)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)


class _Pending(Struct):
    """A token whose text, from `start` to `end`, has not yet left the filter."""

    token: TokenLogprob
    start: int
    end: int
    reported: bool = False

    @property
    def characters(self) -> range:
        """The places of its characters; one that has only begun belongs to its first token."""
        return range(self.start, max(self.end, self.start + 1))


class ContentTokens:
    """Finds the events' text in the tokens' text.

    The output filter removes and holds text, but keeps its order, so the last output ends near the
    end of the input. This identifies tokens of reasoning, of calls and of a stop string. Tokens
    that are partly content count as content.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: list[_Pending] = []
        self._text = ""

    def add(self, token: TokenLogprob) -> None:
        """Add the next token of the answer, before its text is fed to the filter."""
        start = len(self._text)
        self._text += self._decoder.decode(token.piece)
        self._pending.append(_Pending(token, start, len(self._text)))

    def finish(self) -> None:
        """No more tokens follow; the last may be a part of a character."""
        self._text += self._decoder.decode(b"", final=True)
        if self._pending:
            self._pending[-1].end = len(self._text)

    def tokens_of(self, events: Iterable[TextEvent]) -> list[TokenLogprob]:
        """The tokens whose text is in these events' content, each reported once."""
        content: list[TokenLogprob] = []
        for is_thinking, neighbours in groupby(events, lambda e: isinstance(e, Thinking)):
            places = self._places("".join(event.text for event in neighbours))
            if not is_thinking:
                content += self._report(frozenset(places))
            if places:
                self._forget(places[-1] + 1)
        return content

    def _report(self, places: frozenset[int]) -> list[TokenLogprob]:
        """The tokens that have a character at these places and were not reported yet."""
        tokens: list[TokenLogprob] = []
        for pending in self._pending:
            if not pending.reported and not places.isdisjoint(pending.characters):
                pending.reported = True
                tokens.append(pending.token)
        return tokens

    def _places(self, text: str) -> list[int]:
        """The positions of the characters of `text`, in order; missing characters are left out."""
        start = 0 if self._text.startswith(text) else self._text.rfind(text)
        if start >= 0:  # the filter left this text as it was, which is the usual case
            return list(range(start, start + len(text)))
        places: list[int] = []
        end = len(self._text)
        for character in reversed(text):  # the last output ends near the end of the input
            place = self._text.rfind(character, 0, end)
            if place >= 0:
                places.append(place)
                end = place
        return places[::-1]

    def _forget(self, end: int) -> None:
        """Drop the text up to `end`, whose events have been sent, and the tokens within."""
        self._text = self._text[end:]
        self._pending = [p for p in self._pending if p.characters.stop > end]
        for pending in self._pending:
            pending.start = max(0, pending.start - end)
            pending.end = max(0, pending.end - end)
