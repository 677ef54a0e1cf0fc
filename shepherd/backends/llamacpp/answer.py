"""From a job's updates to the events of a generation."""

from shepherd.backends.base import Generation, GenerationStats
from shepherd.backends.llamacpp.job import Failed, Finished, Text, Update
from shepherd.backends.output import OutputFilter, TextEvent
from shepherd.events import CallbackEvent, EventCallback, FinishReason
from shepherd.messages import Message


class Answer:
    """Collects one generation; `cancelled` once the callback has said False.

    `characters` of the model's text were taken in.
    """

    def __init__(
        self, output: OutputFilter, callback: EventCallback, *, cancelled: bool = False
    ) -> None:
        self._output = output
        self._callback = callback
        self.cancelled = cancelled
        self.finished: Finished | None = None
        self.characters = 0

    def take(self, updates: list[Update]) -> None:
        """Send the events of these updates; raises what a Failed carries."""
        text: list[str] = []
        for update in updates:
            match update:
                case Text(text=piece):
                    text.append(piece)
                case Finished():
                    self.finished = update
                case Failed(error=error):
                    raise error
                case _:
                    pass
        if text:
            joined = "".join(text)
            self.characters += len(joined)
            self._send_all(self._output.feed(joined))

    def complete(self, stats: GenerationStats) -> Generation:
        """Send what was held back, STATS, STOP and the calls; `stats` if it was cut off."""
        reason = FinishReason.CANCELLED
        if self.finished is not None and not self.cancelled:
            reason, stats = self.finished.reason, self.finished.stats
        self._send_all(self._output.finish(truncated=reason is not FinishReason.STOP))
        result = self._output.result
        if result.tool_calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        self._send(CallbackEvent.STATS, stats.to_json())
        self._send(CallbackEvent.STOP, reason.value)
        for call in result.tool_calls:
            self._send(CallbackEvent.TOOL_CALL, call.arguments_json, call.name, call.id)
        if self.cancelled:
            reason = FinishReason.CANCELLED
        message = Message.assistant(result.content, result.reasoning, result.tool_calls)
        return Generation(message, reason, stats, result.problems)

    def _send_all(self, events: list[TextEvent]) -> None:
        for event in events:
            self._send(event.event, event.text, event.name)

    def _send(self, event: CallbackEvent, content: str, name: str = "", id: str = "") -> None:
        if not self.cancelled:
            self.cancelled = not self._callback(event, content, name, id)
