"""Tools for models whose template knows none: told in the system message, answered as text."""

import json
from dataclasses import replace

from shepherd.backends.llamacpp.conversation import Conversation
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


def with_plain_tools(conversation: Conversation) -> Conversation:
    """The same conversation without tools in the template's sense.

    Results become what the user says; neighbouring ones become one message, since such
    templates want user and assistant to take turns.
    """
    if not conversation.tools and not any(_is_about_tools(m) for m in conversation.messages):
        return conversation
    system = conversation.system
    if conversation.tools:
        system = f"{system}\n\n{_introduction(conversation.tools)}".lstrip()
    messages: list[Message] = []
    for message in conversation.messages:
        plain = _plain(message)
        previous = messages[-1] if messages else None
        if message.role is Role.TOOL and previous is not None and previous.role is Role.USER:
            messages[-1] = Message.user(f"{previous.content}\n{plain.content}")
        else:
            messages.append(plain)
    return replace(conversation, system=system, messages=tuple(messages), tools=())


def _introduction(tools: tuple[ToolSpec, ...]) -> str:
    lines = [
        json.dumps(
            {"name": t.name, "description": t.description, "parameters": t.parameters},
            ensure_ascii=False,
        )
        for t in tools
    ]
    return _INTRODUCTION.format(tools="\n".join(lines))


def _is_about_tools(message: Message) -> bool:
    return bool(message.tool_calls) or message.role is Role.TOOL


def _plain(message: Message) -> Message:
    if message.role is Role.TOOL:
        return Message.user(f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    parts = [message.content] if message.content else []
    parts += [_call_text(call) for call in message.tool_calls]
    return replace(message, content="\n".join(parts), tool_calls=())


def _call_text(call: ToolCall) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.arguments_json}}}\n</tool_call>'
