"""The typed events of a conversation; made from the events of `shepherd.events`."""

from dataclasses import dataclass, field
from typing import TypeAlias

from shepherd.events import FinishReason, Notice, Stats, Text, Thinking, ToolResult
from shepherd.messages import ToolCall


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a turn: the text and the reasoning after the last result of a tool.

    `problem` says why the turn was stopped, "" if it was not.
    """

    text: str
    thinking: str = ""
    reason: FinishReason = FinishReason.STOP
    tool_calls: tuple[ToolCall, ...] = ()
    stats: tuple[Stats, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class End:
    """The last event of a turn."""

    answer: Answer


Event: TypeAlias = Text | Thinking | ToolCall | ToolResult | Notice | Stats | End
"""One of a turn's events; a `CodeBlock` is a `Text`.

Progress and plans are notices here. What a turn's end or an exception contains is left out.
"""


@dataclass(slots=True)
class AnswerBuilder:
    """Collects an answer from the events of a turn."""

    _text: list[str] = field(default_factory=list[str])
    _thinking: list[str] = field(default_factory=list[str])
    _calls: list[ToolCall] = field(default_factory=list[ToolCall])
    _stats: list[Stats] = field(default_factory=list[Stats])
    problem: str = ""

    def add(self, event: Event) -> None:
        """Add one event."""
        match event:
            case Text():
                self._text.append(event.text)
            case Thinking():
                self._thinking.append(event.text)
            case ToolCall():
                self._calls.append(event)
            case ToolResult():
                self._text.clear()
                self._thinking.clear()
            case Stats():
                self._stats.append(event)
            case Notice() | End():
                pass

    def answer(self, reason: FinishReason) -> Answer:
        """The collected answer."""
        text, thinking = "".join(self._text), "".join(self._thinking)
        calls, stats = tuple(self._calls), tuple(self._stats)
        return Answer(text, thinking, reason, calls, stats, self.problem)
