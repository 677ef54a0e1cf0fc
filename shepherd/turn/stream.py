"""The callback that a turn hands to its backend."""

from dataclasses import dataclass, field

from shepherd.events import CallbackEvent, EventCallback
from shepherd.messages import Message


@dataclass(slots=True)
class TurnStream:
    """Passes events on, keeps the text that passed, and remembers a cancel."""

    callback: EventCallback
    cancelled: bool = False
    _content: list[str] = field(default_factory=list[str])
    _reasoning: list[str] = field(default_factory=list[str])

    def send(self, event: CallbackEvent, content: str, name: str = "", id: str = "") -> bool:
        """Pass an event on; False, and silence from then on, once the callback has said False."""
        if self.cancelled:
            return False
        if event is CallbackEvent.THINKING:
            self._reasoning.append(content)
        elif event in (CallbackEvent.CONTENT, CallbackEvent.CODEBLOCK):
            self._content.append(content)
        self.cancelled = not self.callback(event, content, name, id)
        return not self.cancelled

    def begin_generation(self) -> None:
        """Forget the text of the generation before."""
        self._content.clear()
        self._reasoning.clear()

    def partial_message(self) -> Message | None:
        """What was generated until now, None if nothing."""
        content, reasoning = "".join(self._content), "".join(self._reasoning)
        return Message.assistant(content, reasoning) if content or reasoning else None
