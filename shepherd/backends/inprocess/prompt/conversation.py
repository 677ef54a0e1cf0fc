"""A session as the variables of a chat template, with untrusted text made harmless."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, cast

from shepherd.backends.inprocess.prompt.special import IMAGE, SpecialTexts
from shepherd.images import Image
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.session import Session

SHORT_ID = 9
"""Mistral's templates refuse calls whose ids are not this long."""


_TEMPLATE_EFFORTS = {"minimal": "low", "xhigh": "high"}
"""Templates know low, medium and high."""


@dataclass(frozen=True, slots=True)
class Conversation:
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
            session.system_message,
            tuple(messages),
            tuple(session.tools),
            session.thinking,
            began,
            session.continues,
            {**_effort(session), **session.template_values},
            images,
        )


def _with_marks(message: Message, images: dict[str, Image]) -> Message:
    """The message with a mark for each image, which goes into `images`."""
    if not message.images:
        return message
    marks = {f"{IMAGE}{secrets.token_hex(16)}{IMAGE}": image for image in message.images}
    images.update(marks)
    lines = ["".join(marks), message.content] if message.content else ["".join(marks)]
    return replace(message, content="\n".join(lines), images=())


def _effort(session: Session) -> Mapping[str, object]:
    """The variable of templates whose models know efforts, such as GPT-OSS."""
    effort = session.thinking_effort
    if not (session.thinking and effort):
        return {}
    return {"reasoning_effort": _TEMPLATE_EFFORTS.get(effort, effort)}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The features that a template supports; see `DialectFinder`."""

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
    if not system:
        return messages
    if dialect.system_role:
        return [{"role": "system", "content": system}, *messages]
    for message in messages:
        if message["role"] == "user":
            message["content"] = f"{system}\n\n{message['content']}"
            return messages
    return [{"role": "user", "content": system}, *messages]


def template_value(value: object, specials: SpecialTexts) -> object:
    """A value of a client for a template, without control tokens in its texts."""
    if isinstance(value, str):
        return specials.seal_all(value)
    if isinstance(value, list):
        return [template_value(item, specials) for item in cast(list[object], value)]
    if isinstance(value, dict):
        fields = cast(dict[str, object], value)
        return {specials.seal_all(k): template_value(v, specials) for k, v in fields.items()}
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
                "parameters": _sealed(tool.parameters, specials.seal),
            },
        }
        for tool in tools
    ]


def _message(message: Message, specials: SpecialTexts, dialect: Dialect) -> JsonObject:
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
    arguments: Any = (
        _sealed(call.arguments, specials.seal)
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
    return sha256(id.encode()).hexdigest()[:SHORT_ID] if dialect.short_ids else id


def _sealed(value: Any, seal: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return seal(value)
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return {_sealed(key, seal): _sealed(item, seal) for key, item in items}
    if isinstance(value, list | tuple):
        return [_sealed(item, seal) for item in cast(Sequence[Any], value)]
    return value
