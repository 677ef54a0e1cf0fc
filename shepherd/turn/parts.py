"""The parts of a turn beside its loop: its executor of tools, limits, outcome and events."""

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct, field

from shepherd import errors, events, messages
from shepherd.backends.base import Observer
from shepherd.tools.deferred import open_call
from shepherd.tools.tool import ToolResult


class ToolExecutor(Protocol):
    """Runs calls; for a failed or refused call, it returns a result and does not raise."""

    async def run(
        self,
        call: messages.ToolCall,
        output_bytes: int | None = None,
        on_event: events.EventCallback = events.ignore_events,
    ) -> ToolResult:
        """The call's result; `output_bytes` caps its text below the executor's own limit.

        `on_event` receives SYSTEM notices, and STATS of other models that the call used.
        """
        ...


class TurnLimits(Struct, frozen=True):
    """The guards of one turn; `max_tokens` per generation, 0 means as many as fit.

    `max_hints` limits the hints to the model about calls that were not understood. `total_tokens`
    limits the tokens of all generations, 0 for no limit. Without `evicts`, no message leaves a full
    context: the turn then ends, or raises ContextFullError before its first generation.
    `observer` may limit each generation further, or end the turn with OutOfTokensError.
    """

    max_tokens: int = 0
    max_rounds: int = 50
    reminder_after: int = 3
    stop_after: int = 5
    max_hints: int = 2
    total_tokens: int = 0
    evicts: bool = True
    observer: Observer = field(default_factory=Observer)


class OutOfTokensError(errors.ShepherdError):
    """No more may be generated; the turn ends after its finished rounds."""


class TurnOutcome(Struct, frozen=True):
    """The end of a turn; `stats` has one entry per generation."""

    finish_reason: events.FinishReason
    stats: tuple[events.Stats, ...] = ()


class TurnStream(Struct):
    """Forwards events, keeps their text, and remembers a cancellation.

    Calls of `client_tools` are forwarded unchanged: the client runs them.
    """

    callback: events.EventCallback
    client_tools: Collection[str] = ()
    cancelled: bool = False
    _content: list[str] = field(default_factory=list[str])
    _reasoning: list[str] = field(default_factory=list[str])

    def send(self, event: events.Event) -> bool:
        """Forward an event; False, and nothing is forwarded, after the callback returned False.

        A call of `use_tool` is forwarded as the call inside it.
        """
        if self.cancelled:
            return False
        # the text is kept for the case that the generation never returns its message
        match event:
            case messages.ToolCall():
                event = open_call(event, self.client_tools)
            case events.Thinking():
                self._reasoning.append(event.text)
            case events.Text():
                self._content.append(event.text)
            case _:
                pass
        self.cancelled = not self.callback(event)
        return not self.cancelled

    def begin_generation(self) -> None:
        """Discard the text of the previous generation."""
        self._content.clear()
        self._reasoning.clear()

    def partial_message(self) -> messages.Message | None:
        """The message so far, None if nothing was generated."""
        content, reasoning = "".join(self._content), "".join(self._reasoning)
        return messages.Message.assistant(content, reasoning) if content or reasoning else None
