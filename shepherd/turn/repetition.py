"""The guard against a model that makes the same call again and again."""

from collections import Counter
from dataclasses import dataclass, field

from shepherd.messages import ToolCall

REMINDER = (
    "[This exact call was made {count} times; its result does not change. "
    "Answer with what you know or try something else.]"
)


@dataclass(slots=True)
class RepetitionGuard:
    """Counts equal calls within one turn; a new result of another call starts the count afresh."""

    reminder_after: int
    stop_after: int
    _counts: Counter[str] = field(default_factory=Counter[str])
    _seen: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def exhausted(self, call: ToolCall) -> bool:
        """Count `call`; True when it has now been made `stop_after` times."""
        key = _key(call)
        self._counts[key] += 1
        return self._counts[key] >= self.stop_after

    def annotate(self, call: ToolCall, result: str) -> str:
        """The result, with a reminder once the call was made `reminder_after` times."""
        key = _key(call)
        if (key, result) not in self._seen:
            self._seen.add((key, result))
            self._counts = Counter({key: self._counts[key]})
        count = self._counts[key]
        if count < self.reminder_after:
            return result
        return f"{result}\n{REMINDER.format(count=count)}"


def _key(call: ToolCall) -> str:
    return f"{call.name} {call.arguments_json}"
