"""Calls of a conversation and the results that answer them, where a client sends no ids."""

from collections.abc import Sequence

from shepherd.messages import ToolCall


class CallHistory:
    """The calls so far; a result finds its own by id, else by name, else by order."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[str, ToolCall] = {}
        self._names: dict[str, str] = {}

    def next_id(self) -> str:
        """An id for a call that has none: its number in the conversation."""
        self._count += 1
        return f"call_{self._count}"

    def add(self, calls: Sequence[ToolCall]) -> None:
        """Calls that the model made."""
        self._open.update((call.id, call) for call in calls)
        self._names.update((call.id, call.name) for call in calls)

    def answered(self, call_id: str, name: str) -> tuple[str, str]:
        """The id and the name of the call that a result belongs to; "" where it is unknown."""
        if call_id in self._names:
            self._open.pop(call_id, None)
            return call_id, self._names[call_id]
        same_name = (call for call in self._open.values() if call.name == name)
        call = next(same_name, None)
        if call is None and not (name or call_id):
            call = next(iter(self._open.values()), None)
        if call is None:
            return call_id or self.next_id(), name
        del self._open[call.id]
        return call.id, call.name
