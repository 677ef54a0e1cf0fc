"""What is told of an asked model's turn while it lasts."""

from dataclasses import dataclass

from shepherd.events import CallbackEvent, EventCallback, Topic
from shepherd.tools.text import one_line

MOST_SHOWN = 160
"""Characters of a call's arguments, or of an error."""


@dataclass(slots=True)
class Progress:
    """The callback of such a turn: a line for each call, what went wrong, and the usage.

    The answer is not told: it is the tool's result. `rounds` are the generations so far, `error`
    is what ended the turn before an answer.
    """

    provider: str
    on_event: EventCallback
    rounds: int = 0
    error: str = ""
    _goes_on: bool = True

    def __call__(self, event: CallbackEvent, content: str, name: str, id: str) -> bool:
        """Take an event; False once `on_event` has said so."""
        match event:
            case CallbackEvent.TOOL_CALL:
                self._line(f"{name} {_short(content)}")
            case CallbackEvent.TOOL_RESULT if content.startswith("Error: "):
                self._line(f"{name}: {_short(content)}")
            case CallbackEvent.SYSTEM if name != Topic.PREFILL:
                self._line(content, name)
            case CallbackEvent.ERROR:
                self.error = content
            case CallbackEvent.STATS:
                self.rounds += 1
                self._send(event, content, self.provider)
            case _:
                pass
        return self._goes_on

    def _line(self, text: str, topic: str = Topic.PROGRESS) -> None:
        self._send(CallbackEvent.SYSTEM, f"{self.provider}: {text}", topic)

    def _send(self, event: CallbackEvent, content: str, name: str) -> None:
        self._goes_on = self._goes_on and self.on_event(event, content, name, "")


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}…"
