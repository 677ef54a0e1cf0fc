"""What deltas add up to."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from shepherd.backends.api.adapter import (
    CallDelta,
    Delta,
    ErrorDelta,
    ExtraDelta,
    StopDelta,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from shepherd.messages import JsonObject, Message, Role, ToolCall


@dataclass(slots=True)
class Told:
    """An answer; `calls` are id, name and arguments as text, in the order of first sight."""

    text: str = ""
    thought: str = ""
    calls: list[list[str]] = field(default_factory=list[list[str]])
    usage: list[UsageDelta] = field(default_factory=list[UsageDelta])
    stops: list[StopDelta] = field(default_factory=list[StopDelta])
    errors: list[ErrorDelta] = field(default_factory=list[ErrorDelta])
    extra: list[JsonObject] = field(default_factory=list[JsonObject])

    def message(self, adapter: str) -> Message:
        """The message as it goes into history."""
        calls = tuple(ToolCall(call[0], call[1], json.loads(call[2])) for call in self.calls)
        extra = {adapter: self.extra[0]} if self.extra else {}
        return Message(Role.ASSISTANT, self.text, self.thought, calls, extra=extra)


def told(deltas: Iterable[Delta]) -> Told:
    """The deltas put together; an id or a name that comes twice is an error."""
    answer, places = Told(), dict[int | str, list[str]]()
    for delta in deltas:
        match delta:
            case TextDelta(text):
                answer.text += text
            case ThinkingDelta(text):
                answer.thought += text
            case CallDelta():
                _take_call(delta, answer, places)
            case UsageDelta():
                answer.usage.append(delta)
            case StopDelta():
                answer.stops.append(delta)
            case ErrorDelta():
                answer.errors.append(delta)
            case ExtraDelta(value):
                answer.extra.append(value)
    return answer


def _take_call(delta: CallDelta, answer: Told, places: dict[int | str, list[str]]) -> None:
    if delta.key not in places:
        places[delta.key] = ["", "", ""]
        answer.calls.append(places[delta.key])
    call = places[delta.key]
    assert not (call[0] and delta.id)
    assert not (call[1] and delta.name)
    assert isinstance(delta.arguments, str)
    call[0] += delta.id
    call[1] += delta.name
    call[2] += delta.arguments
