"""Detects the features of a chat template, and rewrites conversations for it."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from shepherd.backends.inprocess.prompt.conversation import Conversation, Dialect
from shepherd.messages import Message, Role, ToolCall, ToolSpec

_INTRODUCTION = """\
# Tools

You may call one or more of these functions:
<tools>
{tools}
</tools>

For each call, write a JSON object with the function's name and arguments within tags:
<tool_call>
{{"name": <name>, "arguments": <object>}}
</tool_call>"""

_WANTS_SHORT_IDS = re.compile(r"length\s*[!=]=\s*9\b|length 9")

_USER = Message.user("shepherd-user")
_SYSTEM = "shepherd-system"
_CALLS = tuple(
    ToolCall(f"call0000{i}", "shepherd_tool", {"key": f"shepherd-value-{i}"}) for i in range(2)
)

Attempt = Callable[[Conversation, Dialect], str]
"""Renders a conversation, or returns "" if the template fails."""


def adapt(conversation: Conversation, dialect: Dialect) -> Conversation:
    """The conversation in a form that the template can render completely."""
    if not dialect.late_system and any(m.role is Role.SYSTEM for m in conversation.messages):
        conversation = with_plain_system(conversation)
    if not dialect.tools:
        return with_plain_tools(conversation)
    if not dialect.calls:
        return replace(conversation, messages=tuple(map(_with_plain_calls, conversation.messages)))
    if not dialect.many_calls:
        return with_single_calls(conversation)
    return conversation


def with_plain_system(conversation: Conversation) -> Conversation:
    """The conversation with its later system messages as text of the user.

    They join a message of the user beside them, because many templates require turns.
    """
    messages: list[Message] = []
    after_system = False
    for message in conversation.messages:
        is_system = message.role is Role.SYSTEM
        speaks = is_system or (after_system and message.role is Role.USER)
        if speaks and messages and messages[-1].role is Role.USER:
            content = f"{messages[-1].content}\n\n{message.content}"
            messages[-1] = replace(messages[-1], content=content)
        else:
            messages.append(Message.user(message.content) if is_system else message)
        after_system = is_system
    return replace(conversation, messages=tuple(messages))


def with_plain_tools(conversation: Conversation) -> Conversation:
    """The conversation with tools in the system message, and calls and results as text.

    Results become messages of the user. Adjacent results are merged, because such templates
    require user and assistant to take turns.
    """
    system = conversation.system
    if conversation.tools:
        system = f"{system}\n\n{_introduction(conversation.tools)}".lstrip()
    messages: list[Message] = []
    for message in conversation.messages:
        previous = messages[-1] if messages else None
        if message.role is not Role.TOOL:
            messages.append(_with_plain_calls(message))
        elif previous is not None and previous.role is Role.USER:
            messages[-1] = Message.user(f"{previous.content}\n{_result_text(message)}")
        else:
            messages.append(Message.user(_result_text(message)))
    return replace(conversation, system=system, messages=tuple(messages), tools=())


def with_single_calls(conversation: Conversation) -> Conversation:
    """Several calls of a message as several messages, each followed by its result."""
    results = {m.tool_call_id: m for m in conversation.messages if m.role is Role.TOOL}
    placed: set[str] = set()
    messages: list[Message] = []
    for message in conversation.messages:
        if message.role is Role.TOOL and message.tool_call_id in placed:
            continue
        if len(message.tool_calls) < 2:
            messages.append(message)
            continue
        for number, call in enumerate(message.tool_calls):
            first = message if number == 0 else Message.assistant("")
            messages.append(replace(first, tool_calls=(call,)))
            if call.id in results:
                messages.append(results[call.id])
                placed.add(call.id)
    return replace(conversation, messages=tuple(messages))


def _introduction(tools: tuple[ToolSpec, ...]) -> str:
    lines = [
        json.dumps(
            {"name": t.name, "description": t.description, "parameters": t.parameters},
            ensure_ascii=False,
        )
        for t in tools
    ]
    return _INTRODUCTION.format(tools="\n".join(lines))


def _result_text(message: Message) -> str:
    return f"<tool_response>\n{message.content}\n</tool_response>"


def _with_plain_calls(message: Message) -> Message:
    if not message.tool_calls:
        return message
    parts = [message.content] if message.content else []
    parts += [_call_text(call) for call in message.tool_calls]
    return replace(message, content="\n".join(parts), tool_calls=())


def _call_text(call: ToolCall) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.arguments_json}}}\n</tool_call>'


@dataclass(frozen=True, slots=True)
class DialectFinder:
    """Detects by trial which features a template supports."""

    source: str
    attempt: Attempt

    def find(self) -> Dialect:
        """The dialect with all features that the template supports."""
        dialect = Dialect(short_ids=_WANTS_SHORT_IDS.search(self.source) is not None)
        if not self._takes_system(dialect):
            dialect = replace(dialect, system_role=False)
        if not self._takes_late_system(dialect):
            dialect = replace(dialect, late_system=False)
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

    def _takes_late_system(self, dialect: Dialect) -> bool:
        early = (_USER, Message(Role.SYSTEM, _SYSTEM))
        later = (*early, Message.assistant("shepherd-answer"), _USER)
        return all(_SYSTEM in self.attempt(Conversation("", m), dialect) for m in (early, later))

    def _takes_calls(self, dialect: Dialect, count: int) -> bool:
        calls = _CALLS[:count]
        results = (Message.tool(call, "shepherd-result") for call in calls)
        messages = (_USER, Message.assistant("", tool_calls=calls), *results)
        rendered = self.attempt(Conversation("", messages), dialect)
        return all(call.arguments["key"] in rendered for call in calls)
