"""From a job's updates to the events of a generation."""

from shepherd.backends.base import Generation, GenerationStats
from shepherd.backends.inprocess.updates import Failed, Finished, Text, Update
from shepherd.backends.output import OutputFilter, ShownTokens, TextEvent
from shepherd.events import CallbackEvent, EventCallback, FinishReason
from shepherd.logprobs import TokenLogprob
from shepherd.messages import Message


class Answer:
    """Collects one generation; `cancelled` once the callback has said False.

    `characters` of the model's text were taken in.
    """

    def __init__(
        self,
        output: OutputFilter,
        callback: EventCallback,
        *,
        cancelled: bool = False,
        logprobs: list[TokenLogprob] | None = None,
    ) -> None:
        """`logprobs` takes those of the content's tokens, before its events are sent."""
        self._output = output
        self._logprobs = logprobs
        self._shown = None if logprobs is None else ShownTokens()
        self._callback = callback
        self.cancelled = cancelled
        self.finished: Finished | None = None
        self.characters = 0

    def take(self, updates: list[Update]) -> None:
        """Send the events of these updates; raises what a Failed carries."""
        text: list[str] = []
        for update in updates:
            match update:
                case Text() if self._shown is not None:
                    self._follow(update, self._shown)
                case Text(text=piece):
                    text.append(piece)
                case Finished():
                    self.finished = update
                case Failed(error=error):
                    raise error
                case _:
                    pass
        if text:
            self._feed("".join(text))

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
        logprobs = None if self._logprobs is None else tuple(self._logprobs)
        return Generation(message, reason, stats, result.problems, logprobs)

    def _follow(self, update: Text, shown: ShownTokens) -> None:
        """Feed one token alone, so that it is known what becomes of it."""
        if update.logprob is None:
            shown.finish()
        else:
            shown.add(update.logprob)
        self._feed(update.text)

    def _feed(self, text: str) -> None:
        self.characters += len(text)
        self._send_all(self._output.feed(text))

    def _send_all(self, events: list[TextEvent]) -> None:
        if self._shown is not None and self._logprobs is not None:
            self._logprobs += self._shown.shown(events)
        for event in events:
            self._send(event.event, event.text, event.name)

    def _send(self, event: CallbackEvent, content: str, name: str = "", id: str = "") -> None:
        if not self.cancelled:
            self.cancelled = not self._callback(event, content, name, id)
