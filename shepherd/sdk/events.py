"""The typed events of a conversation; made from the events of `shepherd.events`."""

import json
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from shepherd.backends.base import GenerationStats
from shepherd.events import CallbackEvent, FinishReason
from shepherd.messages import ToolCall


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CodeBlock(Text):
    """A piece of the answer that is fenced code, with its fences."""

    language: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of the call `id` of the tool `name`, as the model reads it."""

    id: str
    name: str
    text: str

    @property
    def ok(self) -> bool:
        """Whether the call was run without an error."""
        return not self.text.startswith("Error: ")


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the user; `topic` is one of `shepherd.events.Topic`.

    `id` is that of the call that it is about, "" for none.
    """

    text: str
    topic: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Stats(GenerationStats):
    """The measures of one generation; `provider` is set if another model worked for a tool."""

    provider: str = ""


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
"""One of a turn's events; a `CodeBlock` is a `Text`."""


def to_event(kind: CallbackEvent, content: str, name: str, id: str) -> Event | None:
    """The typed event; None for information that the turn's end or an exception contains."""
    match kind:
        case CallbackEvent.CONTENT:
            return Text(content)
        case CallbackEvent.CODEBLOCK:
            return CodeBlock(content, name)
        case CallbackEvent.THINKING:
            return Thinking(content)
        case CallbackEvent.TOOL_CALL:
            return ToolCall(id, name, json.loads(content))
        case CallbackEvent.TOOL_RESULT:
            return ToolResult(id, name, content)
        case CallbackEvent.SYSTEM:
            return Notice(content, name, id)
        case CallbackEvent.STATS:
            return _stats(content, name)
        case CallbackEvent.USER_PROMPT | CallbackEvent.ERROR | CallbackEvent.STOP:
            return None


def _stats(content: str, provider: str) -> Stats:
    data = json.loads(content)
    names = [f.name for f in fields(GenerationStats)]
    return Stats(**{name: data[name] for name in names if name in data}, provider=provider)


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
