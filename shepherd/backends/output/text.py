"""The text side of the output: events, and what they add up to."""

from typing import NamedTuple

from shepherd.events import CallbackEvent


class TextEvent(NamedTuple):
    """A piece of text: CONTENT, THINKING, or CODEBLOCK with the language as `name`."""

    event: CallbackEvent
    text: str
    name: str = ""


class TextSink:
    """Collects text in order; neighbours of one kind become one event."""

    def __init__(self) -> None:
        self._events: list[TextEvent] = []
        self._content: list[str] = []
        self._reasoning: list[str] = []

    def put(self, event: CallbackEvent, text: str, name: str = "") -> None:
        if not text:
            return
        (self._reasoning if event is CallbackEvent.THINKING else self._content).append(text)
        last = self._events[-1] if self._events else None
        if last is not None and last.event is event and last.name == name:
            self._events[-1] = TextEvent(event, last.text + text, name)
        else:
            self._events.append(TextEvent(event, text, name))

    def take(self) -> list[TextEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def part_reasoning(self) -> None:
        """Begin another stretch of reasoning, a blank line behind the last."""
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
