"""Conversations put in the way that a template understands."""

import json
from dataclasses import replace

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


def adapt(conversation: Conversation, dialect: Dialect) -> Conversation:
    """The same conversation in a form that the template does not fail at or lose."""
    if not dialect.tools:
        return with_plain_tools(conversation)
    if not dialect.calls:
        return replace(conversation, messages=tuple(map(_with_plain_calls, conversation.messages)))
    if not dialect.many_calls:
        return with_single_calls(conversation)
    return conversation


def with_plain_tools(conversation: Conversation) -> Conversation:
    """The tools told in the system message, calls and results as text.

    Results become what the user says; neighbouring ones become one message, since such
    templates want user and assistant to take turns.
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
