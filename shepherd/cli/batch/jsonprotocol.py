"""The objects that a JSON lines conversation writes."""

from dataclasses import dataclass, field
from typing import BinaryIO

from shepherd.cli.batch.jsoninput import InputError
from shepherd.cli.render.status import Totals
from shepherd.events import (
    Event,
    Failure,
    Notice,
    PlanUpdate,
    Stats,
    Text,
    Thinking,
    ToolResult,
    Topic,
)
from shepherd.messages import INTERRUPTED, JsonObject, ToolCall
from shepherd.transcript.records import json_line

MAX_ECHOED = 200

OUTPUT_TYPES = {
    "text": "`content`: the next piece of the answer",
    "thinking": "`content`: the next piece of the reasoning",
    "tool_use": "`id`, `name`, `input` (object)",
    "tool_result": "`id`, `name`, `content`; exactly one for each `tool_use`",
    "stats": "tokens, seconds, speeds and context after each generation; `cost` in US dollars if "
    "the price is known; `provider` if a tool asked another model",
    "system": f"`topic` ({', '.join(f'`{t}`' for t in Topic if t is not Topic.PREFILL)}) and "
    "`content`, which is JSON for `plan`; with a call its `id`",
    "approval": "a question: `id`, `tool`, `call_id`, `arguments`, `preview`, `accesses`, `cause`, "
    "`asker`, `sandbox`, the rules that `session` and `always` would add, and `fields` to fill in",
    "command_result": "`command`, and its output as `content`",
    "error": "`error` (kind) and `message`; also `line` and `input` for a line that is not valid",
    "end_turn": "`reason` (`stop`, `length`, `error`, `cancelled`), `session` (id), and `denied`: "
    "the number of denials in the turn; if a price is known, `cost` of the turn and `total_cost` "
    "since the start, in US dollars",
}
"""Each type of output with its fields, for the reference."""


@dataclass(slots=True)
class EventWriter:
    """Writes one object per line, each flushed; `broken` is True once the output is closed."""

    file: BinaryIO
    broken: bool = False
    turn: Totals = field(default_factory=Totals)
    session: Totals = field(default_factory=Totals)
    _open_calls: dict[str, str] = field(default_factory=dict[str, str])

    def receive(self, event: Event) -> bool:
        """Write an event; the callback of a turn."""
        match event:
            case Text():
                self.write({"type": "text", "content": event.text})
            case Thinking():
                self.write({"type": "thinking", "content": event.text})
            case ToolCall(id=id, name=name, arguments=arguments):
                self._open_calls[id] = name
                self.write({"type": "tool_use", "id": id, "name": name, "input": arguments})
            case ToolResult():
                self._result(event.id, event.name, event.text)
            case Stats():
                self._stats(event)
            case Failure():
                self.error(event.error, event.message)
            case Notice():
                self._notice(event)
            case PlanUpdate():
                self._notice(event.notice)
            case _:
                pass
        return not self.broken

    def system(self, topic: Topic, text: str) -> None:
        """Write a `system` object without a call."""
        self.write({"type": "system", "topic": topic, "content": text})

    def notice(self, text: str) -> None:
        """A sentence for the user."""
        self.system(Topic.NOTICE, text)

    def error(self, kind: str, message: str, **more: object) -> bool:
        """Report an error; the conversation continues."""
        return self.write({"type": "error", "error": kind, "message": message, **more})

    def bad_input(self, number: int, line: bytes, error: InputError) -> None:
        """Report that line `number` is invalid; its beginning is sent back."""
        excerpt = line.decode("utf-8", "replace")[:MAX_ECHOED]
        self.error("InputError", f"line {number}: {error}", line=number, input=excerpt)

    def end_turn(self, reason: str, session: str, denied: int) -> None:
        """Report the end of the turn; calls without a result get one."""
        for call_id, name in list(self._open_calls.items()):
            self._result(call_id, name, INTERRUPTED)
        ended: JsonObject = {
            "type": "end_turn",
            "reason": reason,
            "session": session,
            "denied": denied,
        }
        costs = {"cost": self.turn.cost, "total_cost": self.session.cost}
        ended |= {name: cost for name, cost in costs.items() if cost is not None}
        self.write(ended)
        self.turn = Totals()

    def write(self, data: dict[str, object]) -> bool:
        """Write an object; False if the output is closed."""
        if not self.broken:
            try:
                self.file.write(json_line(data))
                self.file.flush()
            except BrokenPipeError:
                self.broken = True
        return not self.broken

    def _notice(self, notice: Notice) -> None:
        of_call = {"id": notice.id} if notice.id else {}
        data = {"topic": notice.topic, "content": notice.text}
        self.write({"type": "system", **data, **of_call})

    def _stats(self, stats: Stats) -> None:
        for totals in (self.turn, self.session):
            totals.add(stats)
        origin = {"provider": stats.provider, "id": stats.id}
        known = {name: text for name, text in origin.items() if text}
        self.write({"type": "stats", **stats.measures(), **known})

    def _result(self, id: str, name: str, content: str) -> None:
        self._open_calls.pop(id, None)
        self.write({"type": "tool_result", "id": id, "name": name, "content": content})
