"""How long tools take, learned from the traffic of all clients."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import monotonic

from shepherd.messages import Message, Role, ToolCall

UNKNOWN_SECONDS = 10.0
"""The time of a tool without any measurement: the median in public traces of an agent."""

LEARNING_RATE = 0.3
"""The weight of one call in the average."""

_MAX_CALLS = 1024


class ToolTimes:
    """The seconds from an answer with calls to their results, by the name of the slowest tool.

    Clients send the ids of calls back, so nobody needs to tell which conversation a request is of.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.seconds: dict[str, float] = {}
        """Moving averages."""
        self._clock = clock
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def expect(self, calls: Sequence[ToolCall]) -> float | None:
        """The seconds until the results of an answer's calls come; None if it has no calls."""
        if not calls:
            return None
        seconds, name = max((self.seconds.get(c.name, UNKNOWN_SECONDS), c.name) for c in calls)
        for call in calls:
            self._open[call.id] = (name, self._clock())
        while len(self._open) > _MAX_CALLS:
            self._open.popitem(last=False)  # nobody has sent its result
        return seconds

    def learn(self, messages: Sequence[Message]) -> None:
        """Learn from the results at the end of a prompt, the first time that they are sent."""
        ended: set[tuple[str, float]] = set()
        for message in reversed(messages):
            if message.role is Role.ASSISTANT:
                break
            if message.tool_call_id in self._open:
                ended.add(self._open.pop(message.tool_call_id))
        for name, started in ended:
            taken = self._clock() - started
            known = self.seconds.get(name, taken)
            self.seconds[name] = known + LEARNING_RATE * (taken - known)
