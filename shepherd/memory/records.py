"""Records of the memory as plain data, and the text that is stored of a message."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from shepherd.messages import Message, Role, ToolCall

RESULT_CHARACTERS = 16_384
"""Maximum length of a tool's result; the rest is cut off."""

WHOLE_CHARACTERS = 600
"""A message up to this length is returned in full; of a longer one, the matching part."""

EVERYWHERE = ""
"""The project of facts that apply to all projects."""

MAX_KEY, MAX_VALUE = 200, 8192
"""Maximum lengths of a fact's key and value in characters."""

OWN_TOOLS = frozenset({"search_memory", "set_fact", "get_fact", "clear_fact"})
"""Results of these tools are not stored again."""


@dataclass(frozen=True, slots=True)
class Place:
    """The working directory of a conversation, and its project."""

    directory: str
    project: str

    @classmethod
    def of(cls, cwd: Path) -> "Place":
        """The place of `cwd`; its project is the git repository around it, else `cwd` itself."""
        root = next((d for d in (cwd, *cwd.parents) if (d / ".git").exists()), cwd)
        return cls(str(cwd), str(root))


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """An evicted message; `tool` is the name of a result's tool, else ""."""

    session: str
    place: Place
    said: datetime
    role: Role
    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A match of a search; `text` is a short message, or a part of a long one.

    `directory` is the working directory of the message, "" if it belongs to this project.
    """

    said: datetime
    role: Role
    tool: str
    directory: str
    text: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact; `everywhere` if it applies to all projects."""

    key: str
    value: str
    everywhere: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of stored items; `text_bytes` is the size of all messages, `oldest` is a time."""

    messages: int
    sessions: int
    text_bytes: int
    facts: int
    oldest: datetime | None


def archived_text(message: Message) -> str:
    """The searchable text of a message: its content and its calls; "" if it is not stored."""
    if message.is_hint or (message.role is Role.TOOL and message.name in OWN_TOOLS):
        return ""
    calls = [_call_text(call) for call in message.tool_calls if call.name not in OWN_TOOLS]
    text = "\n".join(part for part in (storable(message.plain_text).strip(), *calls) if part)
    return cut(text, RESULT_CHARACTERS) if message.role is Role.TOOL else text


def storable(text: str) -> str:
    """`text` as SQLite can store it: without NUL and without lone surrogates."""
    text = text.replace("\0", "")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def cut(text: str, characters: int) -> str:
    """The beginning of `text`, with a note if something was cut off."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]}\n[{len(text) - characters} more characters were not kept]"


def _call_text(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={_plain(value)}" for name, value in call.arguments.items())
    return storable(f"{call.name}({arguments})")


def _plain(value: Any) -> str:
    """A JSON value as searchable text, without escapes."""
    if isinstance(value, list):
        return f"[{', '.join(_plain(item) for item in cast(list[Any], value))}]"
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return f"{{{', '.join(f'{key}: {_plain(item)}' for key, item in items)}}}"
    return str(value)
