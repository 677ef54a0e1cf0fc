"""What a chat template can take, found out by trying."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from shepherd.backends.inprocess.prompt.conversation import Conversation, Dialect
from shepherd.messages import Message, ToolCall

_WANTS_SHORT_IDS = re.compile(r"length\s*[!=]=\s*9\b|length 9")

_USER = Message.user("shepherd-user")
_SYSTEM = "shepherd-system"
_CALLS = tuple(
    ToolCall(f"call0000{i}", "shepherd_tool", {"key": f"shepherd-value-{i}"}) for i in range(2)
)

Attempt = Callable[[Conversation, Dialect], str]
"""Renders a conversation, or gives "" when the template fails."""


@dataclass(frozen=True, slots=True)
class DialectFinder:
    """Tries a template's abilities one after the other."""

    source: str
    attempt: Attempt

    def find(self) -> Dialect:
        """The richest dialect that the template understands."""
        dialect = Dialect(short_ids=_WANTS_SHORT_IDS.search(self.source) is not None)
        if not self._takes_system(dialect):
            dialect = replace(dialect, system_role=False)
        if "tools" not in self.source:
            return replace(dialect, tools=False)
        as_text = replace(dialect, arguments_as_object=False)
        if not self._takes_calls(dialect, 1) and self._takes_calls(as_text, 1):
            dialect = as_text
        if not self._takes_calls(dialect, 1):
            return replace(dialect, calls=False)
        return dialect if self._takes_calls(dialect, 2) else replace(dialect, many_calls=False)

    def _takes_system(self, dialect: Dialect) -> bool:
        """Only a template that renders without a system message and loses one refuses it."""
        plain = self.attempt(Conversation("", (_USER,)), dialect)
        return _SYSTEM in self.attempt(Conversation(_SYSTEM, (_USER,)), dialect) or not plain

    def _takes_calls(self, dialect: Dialect, count: int) -> bool:
        calls = _CALLS[:count]
        results = (Message.tool(call, "shepherd-result") for call in calls)
        messages = (_USER, Message.assistant("", tool_calls=calls), *results)
        rendered = self.attempt(Conversation("", messages), dialect)
        return all(call.arguments["key"] in rendered for call in calls)
