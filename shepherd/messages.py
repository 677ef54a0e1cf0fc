"""Messages of a conversation as plain data, and their JSON form."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field, structs

from shepherd.images import MEDIA_TYPES, Image

JsonObject: TypeAlias = dict[str, Any]

HINT_NAME = "shepherd"
"""The `name` of a user message that no user wrote."""

_NOTE = "\n\n<note>\n{text}\n</note>"

INTERRUPTED = "Error: interrupted by the user"
"""The result of a call that was stopped before its end."""


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(Struct, frozen=True):
    """A call that a model made; `arguments` is the parsed object, never its text.

    `extra` holds data that an API wants back with the call, under the API's name.
    """

    id: str
    name: str
    arguments: JsonObject
    extra: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])

    @property
    def arguments_json(self) -> str:
        """The arguments as canonical JSON."""
        return json.dumps(self.arguments, ensure_ascii=False)


class ToolSpec(Struct, frozen=True):
    """A tool as a model sees it; `parameters` is a JSON schema of type object.

    `enforced`: a request is refused if the model can't be held to the schema. `parallel`: calls of
    one answer may run at the same time. `polls`: equal calls are usual, because results change.
    `grammar`: llguidance's rule for the arguments in JSON, in place of the schema.
    """

    name: str
    description: str
    parameters: JsonObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    enforced: bool = False
    parallel: bool = False
    polls: bool = False
    grammar: str = ""


class Message(Struct, frozen=True):
    """One message; content, reasoning and tool calls are separate, and exactly as generated.

    Messages of role TOOL have `tool_call_id` and `name`, the tool's name. A hint is a message of
    role USER that Shepherd wrote within a turn. `extra` holds data that an API wants back unchanged
    (signatures), under the API's name; other APIs ignore it. Images come before the text. Messages
    of the user and results of tools can have images.
    """

    role: Role
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    extra: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    images: tuple[Image, ...] = ()

    @classmethod
    def user(cls, content: str, images: tuple[Image, ...] = ()) -> "Message":
        return cls(Role.USER, content, images=images)

    @classmethod
    def hint(cls, content: str) -> "Message":
        return cls(Role.USER, content, name=HINT_NAME)

    @property
    def is_hint(self) -> bool:
        """Whether Shepherd wrote it instead of the user."""
        return self.role is Role.USER and self.name == HINT_NAME

    @property
    def plain_text(self) -> str:
        """A line for each image, then the content."""
        labels = [image.label for image in self.images]
        return "\n".join([*labels, self.content] if self.content else labels)

    def without_images(self) -> "Message":
        """The message with its images as lines of text."""
        return structs.replace(self, content=self.plain_text, images=()) if self.images else self

    @classmethod
    def assistant(
        cls, content: str, reasoning: str = "", tool_calls: tuple[ToolCall, ...] = ()
    ) -> "Message":
        return cls(Role.ASSISTANT, content, reasoning, tool_calls)

    @classmethod
    def tool(cls, call: ToolCall, content: str) -> "Message":
        return cls(Role.TOOL, content, tool_call_id=call.id, name=call.name)


def with_notes(message: Message, notes: Sequence[str]) -> Message:
    """The message, followed by notes of Shepherd for the model."""
    if not notes:
        return message
    texts = [_NOTE.format(text=text) for text in notes]
    return structs.replace(message, content="".join([message.content, *texts]))


def message_to_json(message: Message) -> JsonObject:
    """The message as a JSON object without empty fields; `message_from_json` is the inverse."""
    data = _without_empty(msgspec.to_builtins(message), "role", "content")  # bytes as base64
    if message.tool_calls:
        calls = data["tool_calls"]
        data["tool_calls"] = [_without_empty(call, "id", "name", "arguments") for call in calls]
    if message.images:
        data["images"] = [_without_empty(image, "data") for image in data["images"]]
    return data


def _without_empty(data: JsonObject, *always: str) -> JsonObject:
    """The fields that have a value, and those that are always written."""
    return {name: value for name, value in data.items() if value or name in always}


def message_from_json(data: JsonObject) -> Message:
    """The message that `message_to_json` wrote; raises ValueError for any other object."""
    if "content" not in data:
        raise ValueError("a message has a content")
    message = msgspec.convert(data, Message)
    for image in message.images:
        if image.media_type not in MEDIA_TYPES:
            raise ValueError(f"unknown type of image: {image.media_type!r}")
    return message
