"""Guards against a model that repeats the same call, and limits hints about broken calls."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from shepherd.backends.base import Generation
from shepherd.events import FinishReason
from shepherd.messages import Message, ToolCall
from shepherd.session import Session

REMINDER = (
    "[This exact call was made {count} times; its result does not change. "
    "Answer with what you know or try something else.]"
)


POLL_FACTOR = 4
"""Equal calls of tools that poll may come so many times as often."""


@dataclass(slots=True)
class RepetitionGuard:
    """Counts equal calls within one turn; a new result of another call resets the count.

    `polls` names the tools whose equal calls are usual.
    """

    reminder_after: int
    stop_after: int
    polls: Collection[str] = ()
    _counts: Counter[str] = field(default_factory=Counter[str])
    _seen: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def exhausted(self, call: ToolCall) -> bool:
        """Count `call`; True if it has now been made `stop_after` times."""
        key = _key(call)
        self._counts[key] += 1
        return self._counts[key] >= self.limit(call)

    def limit(self, call: ToolCall) -> int:
        """The number of equal calls that ends the turn."""
        return self.stop_after * self._factor(call)

    def annotate(self, call: ToolCall, result: str) -> str:
        """The result, with a reminder once the call has been made `reminder_after` times."""
        key = _key(call)
        if (key, result) not in self._seen:
            self._seen.add((key, result))
            self._counts = Counter({key: self._counts[key]})
        count = self._counts[key]
        if count < self.reminder_after * self._factor(call):
            return result
        return f"{result}\n{REMINDER.format(count=count)}"

    def _factor(self, call: ToolCall) -> int:
        return POLL_FACTOR if call.name in self.polls else 1


def _key(call: ToolCall) -> str:
    return f"{call.name} {call.arguments_json}"


HINT = (
    "[No tool was run. {problems} Write the whole call again in the right form, "
    "or answer in plain words if no call was meant.]"
)
RETRIED = "A tool call could not be understood, so the model tries again: {problems}"
ABANDONED = "A tool call could not be understood and was not run: {problems}"


@dataclass(slots=True)
class HintGuard:
    """Limits the hints of one turn about calls that were not understood."""

    left: int

    def needed(self, session: Session, generation: Generation) -> bool:
        """Whether `generation` tried to call a tool, but has no valid call."""
        ended_well = generation.finish_reason is FinishReason.STOP
        called = bool(generation.message.tool_calls)
        return bool(session.tools and generation.problems) and ended_well and not called

    def take(self) -> bool:
        """Use one hint; False if none is left."""
        self.left -= 1
        return self.left >= 0


def hint(generation: Generation) -> Message:
    """The message that explains the problem to the model."""
    return Message.hint(HINT.format(problems=" ".join(generation.problems)))
