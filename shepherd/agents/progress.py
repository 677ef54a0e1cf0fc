"""The turn of a model that a tool calls: its lines for the user, its last round, its answer."""

from msgspec import Struct, structs

from shepherd import events, messages
from shepherd.session import Session
from shepherd.tools.text import one_line
from shepherd.tools.tool import CallRunner, ToolResult

MAX_CHARACTERS = 160
"""Maximum characters of a call's arguments, or of an error, in a notice."""

LAST_ROUND = "[No more calls: answer now with what you know.]"
CUT = "\n[cut: the answer reached its limit of tokens]"


def answer_of(caller: str, session: Session, reason: events.FinishReason, error: str) -> ToolResult:
    """The result of a tool whose model has ended its turn for `reason`."""
    if reason is events.FinishReason.CANCELLED:
        return ToolResult(messages.INTERRUPTED, ok=False)
    last = session.messages[-1]
    answer = last.content if last.role is messages.Role.ASSISTANT else ""
    reached_limit = reason is events.FinishReason.LENGTH
    if reason is not events.FinishReason.ERROR and answer.strip():
        return ToolResult(answer + CUT if reached_limit else answer)
    if reached_limit and not error:
        error = "It reached its limit of tokens before."
    last_words = f"It said last: {answer}" if answer else ""
    sentences = (f"Error: {caller} gave no answer.", error, last_words)
    return ToolResult(" ".join(filter(None, sentences)), ok=False)


class Progress(Struct):
    """The callback of such a turn: it sends a line for each call, errors, and the usage.

    `label` begins each line, and `topic` is the topic of the lines about calls. A line of the topic
    TASK also says that the model writes. `source` is the name of its STATS. The answer is not sent,
    because it is the tool's result. `rounds` counts the generations so far. `error` is the error
    that ended the turn before an answer.
    """

    label: str
    on_event: events.EventCallback
    topic: events.Topic = events.Topic.PROGRESS
    source: str = ""
    rounds: int = 0
    error: str = ""
    _goes_on: bool = True
    _said_writing: bool = False
    """Whether a line has said that this generation writes text."""

    def __call__(self, event: events.Event) -> bool:
        """Handle an event; False once `on_event` has returned False."""
        match event:
            case messages.ToolCall():
                self.line(f"{event.name} {shorten(event.arguments_json)}")
            case events.ToolResult() if not event.ok:
                self.line(f"{event.name}: {shorten(event.text)}")
            case events.Notice() if event.topic != events.Topic.OUTPUT:
                self.line(event.text, event.topic)
            case events.Failure():
                self.error = event.message
            case events.Stats():
                self.rounds += 1
                self._said_writing = False
                self._send(structs.replace(event, provider=self.source or self.label, id=""))
            case events.Text() | events.Thinking():
                if self.topic is events.Topic.TASK and not self._said_writing:
                    self._said_writing = True
                    self.line("writing")
            case _:
                pass
        return self._goes_on

    def line(self, text: str, topic: str = "") -> None:
        """Send a line about the work, of the topic of calls unless it has another `topic`."""
        self._send(events.Notice(f"{self.label}: {text}", topic or self.topic))

    def _send(self, event: events.Event) -> None:
        """Give the event to the user's callback, unless that has stopped the work."""
        self._goes_on = self._goes_on and self.on_event(event)


def shorten(text: str, limit: int = MAX_CHARACTERS) -> str:
    """`text` on one line of at most `limit` characters and an ellipsis."""
    line = one_line(text)
    return line if len(line) <= limit else f"{line[:limit]}…"


class LastRoundExecutor(Struct, frozen=True):
    """Runs calls, and tells the model if its next round is the last."""

    runner: CallRunner
    progress: Progress
    max_rounds: int

    async def run(
        self,
        call: messages.ToolCall,
        output_bytes: int | None = None,
        on_event: events.EventCallback = events.ignore_events,
    ) -> ToolResult:
        """The call's result."""
        result = await self.runner.run(call, output_bytes, on_event)
        next_is_last = self.progress.rounds == self.max_rounds - 1
        if not next_is_last:
            return result
        return structs.replace(result, content=f"{result.content}\n{LAST_ROUND}")
