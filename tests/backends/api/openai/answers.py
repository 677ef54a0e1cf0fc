"""What deltas add up to."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from shepherd.backends.api import stream
from shepherd.messages import JsonObject, Message, Role, ToolCall


@dataclass(slots=True)
class Told:
    """An answer; `calls` are id, name and arguments as text, in the order of first sight."""

    text: str = ""
    thought: str = ""
    calls: list[list[str]] = field(default_factory=list[list[str]])
    usage: list[stream.Usage] = field(default_factory=list[stream.Usage])
    stops: list[stream.Stop] = field(default_factory=list[stream.Stop])
    errors: list[stream.Error] = field(default_factory=list[stream.Error])
    extra: list[JsonObject] = field(default_factory=list[JsonObject])

    def message(self, adapter: str) -> Message:
        """The message as it goes into history."""
        calls = tuple(ToolCall(call[0], call[1], json.loads(call[2])) for call in self.calls)
        extra = {adapter: self.extra[0]} if self.extra else {}
        return Message(Role.ASSISTANT, self.text, self.thought, calls, extra=extra)


def told(deltas: Iterable[stream.Delta]) -> Told:
    """The deltas put together; an id or a name that comes twice is an error."""
    answer, places = Told(), dict[int | str, list[str]]()
    for delta in deltas:
        match delta:
            case stream.Text(text):
                answer.text += text
            case stream.Thinking(text):
                answer.thought += text
            case stream.Call():
                _take_call(delta, answer, places)
            case stream.Usage():
                answer.usage.append(delta)
            case stream.Stop():
                answer.stops.append(delta)
            case stream.Error():
                answer.errors.append(delta)
            case stream.Extra(value):
                answer.extra.append(value)
    return answer


def _take_call(delta: stream.Call, answer: Told, places: dict[int | str, list[str]]) -> None:
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
