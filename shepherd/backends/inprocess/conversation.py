"""A conversation as the variables of a chat template, with untrusted text made harmless."""

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from shepherd.backends.inprocess.special import IMAGE, SpecialTexts
from shepherd.images import Image
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.session import Session

SHORT_ID = 9
"""Mistral's templates refuse calls whose ids are not this long."""


_TEMPLATE_EFFORTS = {"minimal": "low", "xhigh": "high"}
"""Templates know low, medium and high."""

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

_PROBE_USER = Message.user("shepherd-user")
_SYSTEM = "shepherd-system"
_CALLS = tuple(
    ToolCall(f"call0000{i}", "shepherd_tool", {"key": f"shepherd-value-{i}"}) for i in range(2)
)


class Conversation(Struct, frozen=True):
    """The parts of a session that make a prompt, at one moment.

    `images` has the images by their marks in the messages; no one else can write such a mark.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    thinking: bool = False
    began: datetime | None = None
    continues: bool = False
    template_values: Mapping[str, object] = field(default_factory=dict[str, object])
    images: Mapping[str, Image] = field(default_factory=dict[str, Image])

    @classmethod
    def of(cls, session: Session, began: datetime, *, sees: bool = False) -> "Conversation":
        """The session at this moment; unless the model `sees`, with text in place of images."""
        images: dict[str, Image] = {}
        messages = [
            _with_marks(message, images) if sees else message.without_images()
            for message in session.messages
        ]
        return cls(
            system=session.system_message,
            messages=tuple(messages),
            tools=tuple(session.tools),
            thinking=session.thinking,
            began=began,
            continues=session.continues,
            template_values={**_effort(session), **session.template_values},
            images=images,
        )


def _with_marks(message: Message, images: dict[str, Image]) -> Message:
    """The message with a mark for each image, which goes into `images`."""
    if not message.images:
        return message
    marks = {f"{IMAGE}{secrets.token_hex(16)}{IMAGE}": image for image in message.images}
    images.update(marks)
    lines = ("".join(marks), message.content)
    return replace(message, content="\n".join(filter(None, lines)), images=())


def _effort(session: Session) -> Mapping[str, object]:
    """The variable of templates whose models know efforts, such as GPT-OSS."""
    effort = session.thinking_effort if session.thinking else ""
    return {"reasoning_effort": _TEMPLATE_EFFORTS.get(effort, effort)} if effort else {}


class Dialect(Struct, frozen=True):
    """The features that a template supports.

    `late_system`: system messages behind others. `many_calls`: several calls in one message.
    `short_ids`: ids of calls must be `SHORT_ID` characters long.
    """

    system_role: bool = True
    late_system: bool = True
    tools: bool = True
    calls: bool = True
    many_calls: bool = True
    arguments_as_object: bool = True
    short_ids: bool = False


def template_messages(
    conversation: Conversation, specials: SpecialTexts, dialect: Dialect
) -> list[JsonObject]:
    """The messages for a template, the system message first or inside the first user message."""
    messages = [_message(message, specials, dialect) for message in conversation.messages]
    system = specials.seal(conversation.system)
    if not system:  # an empty message would only cost tokens
        return messages
    if dialect.system_role:
        return [{"role": "system", "content": system}, *messages]
    for message in messages:  # the first message of the user takes the system message
        if message["role"] == "user":
            message["content"] = f"{system}\n\n{message['content']}"
            return messages
    return [{"role": "user", "content": system}, *messages]


def sealed(value: Any, seal: Callable[[str], str]) -> Any:
    """A value for a template, with its texts sealed."""
    if isinstance(value, str):
        return seal(value)
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return {sealed(key, seal): sealed(item, seal) for key, item in items}
    if isinstance(value, list | tuple):
        return [sealed(item, seal) for item in cast(Sequence[Any], value)]
    return value


def template_tools(tools: Sequence[ToolSpec], specials: SpecialTexts) -> list[JsonObject] | None:
    """The tools in OpenAI's format; None, not an empty list, if there are none."""
    if not tools:
        return None
    return [
        {
            "type": "function",
            "function": {
                "name": specials.seal(tool.name),
                "description": specials.seal(tool.description),
                "parameters": sealed(tool.parameters, specials.seal),
            },
        }
        for tool in tools
    ]


def _message(message: Message, specials: SpecialTexts, dialect: Dialect) -> JsonObject:
    """The message for a template, with its texts sealed."""
    is_untrusted = message.role in (Role.USER, Role.TOOL)
    seal = specials.seal_all if is_untrusted else specials.seal
    data: JsonObject = {"role": message.role.value, "content": seal(message.content)}
    if message.reasoning:
        data["reasoning_content"] = seal(message.reasoning)
    if message.tool_calls:
        data["tool_calls"] = [_call(call, specials, dialect) for call in message.tool_calls]
    if message.role is Role.TOOL:
        data["tool_call_id"] = seal(_call_id(message.tool_call_id, dialect))
        data["name"] = seal(message.name)
    return data


def _call(call: ToolCall, specials: SpecialTexts, dialect: Dialect) -> JsonObject:
    """The call for a template: in OpenAI's form, and without `function` around it as well."""
    arguments: Any = (
        sealed(call.arguments, specials.seal)
        if dialect.arguments_as_object
        else specials.seal(call.arguments_json)
    )
    name = specials.seal(call.name)
    return {
        "id": specials.seal(_call_id(call.id, dialect)),
        "type": "function",
        "name": name,
        "arguments": arguments,
        "function": {"name": name, "arguments": arguments},
    }


def _call_id(id: str, dialect: Dialect) -> str:
    """The id as the template takes it; a call and its result have the same one."""
    return sha256(id.encode()).hexdigest()[:SHORT_ID] if dialect.short_ids else id


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
    """The conversation with the system messages between its turns as text of the user.

    They join a message of the user beside them, because many templates require that user and
    assistant take turns. Images are marks in the texts, so they come along.
    """
    messages: list[Message] = []
    follows_system = False
    for message in conversation.messages:
        is_system = message.role is Role.SYSTEM
        may_join = is_system or (follows_system and message.role is Role.USER)
        if may_join and messages and messages[-1].role is Role.USER:
            content = f"{messages[-1].content}\n\n{message.content}"
            messages[-1] = replace(messages[-1], content=content)
        else:
            messages.append(Message.user(message.content) if is_system else message)
        follows_system = is_system
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
        if message.role is not Role.TOOL:
            messages.append(_with_plain_calls(message))
            continue
        text = f"<tool_response>\n{message.content}\n</tool_response>"
        if messages and messages[-1].role is Role.USER:
            text = f"{messages.pop().content}\n{text}"
        messages.append(Message.user(text))
    return replace(conversation, system=system, messages=tuple(messages), tools=())


def with_single_calls(conversation: Conversation) -> Conversation:
    """Several calls of a message as several messages, each followed by its result."""
    results = {m.tool_call_id: m for m in conversation.messages if m.role is Role.TOOL}
    placed_results: set[str] = set()
    messages: list[Message] = []
    for message in conversation.messages:
        if message.role is Role.TOOL and message.tool_call_id in placed_results:
            continue
        if len(message.tool_calls) < 2:
            messages.append(message)
            continue
        for number, call in enumerate(message.tool_calls):
            # The content and the reasoning stay with the first call.
            source = message if number == 0 else Message.assistant("")
            messages.append(replace(source, tool_calls=(call,)))
            if call.id in results:
                messages.append(results[call.id])
                placed_results.add(call.id)
    return replace(conversation, messages=tuple(messages))


def _introduction(tools: tuple[ToolSpec, ...]) -> str:
    """The text that tells a model which tools it has and how it calls them."""
    lines = [
        json.dumps(
            {"name": t.name, "description": t.description, "parameters": t.parameters},
            ensure_ascii=False,
        )
        for t in tools
    ]
    return _INTRODUCTION.format(tools="\n".join(lines))


def _with_plain_calls(message: Message) -> Message:
    """The message with its calls as text behind its content, in the form of the introduction."""
    if not message.tool_calls:
        return message
    parts = [message.content] if message.content else []
    for call in message.tool_calls:
        name = json.dumps(call.name, ensure_ascii=False)
        text = f'{{"name": {name}, "arguments": {call.arguments_json}}}'
        parts.append(f"<tool_call>\n{text}\n</tool_call>")
    return replace(message, content="\n".join(parts), tool_calls=())


def find_dialect(source: str, attempt: Attempt) -> Dialect:
    """The dialect with all features that the template `source` supports, learned by trial."""
    dialect = Dialect(short_ids=_WANTS_SHORT_IDS.search(source) is not None)
    if not _takes_system(attempt, dialect):
        dialect = replace(dialect, system_role=False)
    if not _takes_late_system(attempt, dialect):
        dialect = replace(dialect, late_system=False)
    if "tools" not in source:
        return replace(dialect, tools=False)
    if not _takes_calls(attempt, dialect, count=1):
        dialect = replace(dialect, arguments_as_object=False)
        if not _takes_calls(attempt, dialect, count=1):
            return replace(dialect, arguments_as_object=True, calls=False)
    takes_many = _takes_calls(attempt, dialect, count=2)
    return dialect if takes_many else replace(dialect, many_calls=False)


def _takes_system(attempt: Attempt, dialect: Dialect) -> bool:
    """Whether a system message is shown, or the template renders nothing in any case.

    Nothing is learned from a template that fails without a system message too.
    """
    with_system = attempt(Conversation(_SYSTEM, (_PROBE_USER,)), dialect)
    without_system = attempt(Conversation("", (_PROBE_USER,)), dialect)
    return _SYSTEM in with_system or not without_system


def _takes_late_system(attempt: Attempt, dialect: Dialect) -> bool:
    """Whether system messages are shown at the end and in the middle."""
    at_end = (_PROBE_USER, Message(Role.SYSTEM, _SYSTEM))
    inside = (*at_end, Message.assistant("shepherd-answer"), _PROBE_USER)
    return all(_SYSTEM in attempt(Conversation("", m), dialect) for m in (at_end, inside))


def _takes_calls(attempt: Attempt, dialect: Dialect, count: int) -> bool:
    """Whether so many calls in one message are shown with their arguments."""
    calls = _CALLS[:count]
    results = (Message.tool(call, "shepherd-result") for call in calls)
    messages = (_PROBE_USER, Message.assistant("", tool_calls=calls), *results)
    rendered = attempt(Conversation("", messages), dialect)
    return all(call.arguments["key"] in rendered for call in calls)
