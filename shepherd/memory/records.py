"""What goes into the memory and what comes out of it, as plain data."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from shepherd.messages import Message, Role, ToolCall

RESULT_CHARACTERS = 16_384
"""How much of a tool's result is kept; the beginning."""

OWN_TOOLS = frozenset({"search_memory", "set_fact", "get_fact", "clear_fact"})
"""What came out of the memory does not go into it again."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation takes place: its working directory and the project that it is in."""

    directory: str
    project: str

    @classmethod
    def of(cls, cwd: Path) -> "Place":
        """The place of `cwd`; its project is the git repository around it, else `cwd` itself."""
        root = next((d for d in (cwd, *cwd.parents) if (d / ".git").exists()), cwd)
        return cls(str(cwd), str(root))


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """A message that left a conversation; `tool` is the name of a result's tool, else ""."""

    session: str
    place: Place
    said: datetime
    role: Role
    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A hit: `text` is all of a short message, a part of a long one.

    `directory` is where it was said, "" if that is this project.
    """

    said: datetime
    role: Role
    tool: str
    directory: str
    text: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact; `everywhere` if it holds for all projects."""

    key: str
    value: str
    everywhere: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """What there is: `text_bytes` is the text of the messages, `oldest` the first of them."""

    messages: int
    sessions: int
    text_bytes: int
    facts: int
    oldest: datetime | None


def archived_text(message: Message) -> str:
    """What of a message can be found again: its words and its calls; "" if it is not kept."""
    if message.is_hint or (message.role is Role.TOOL and message.name in OWN_TOOLS):
        return ""
    calls = [_call_text(call) for call in message.tool_calls if call.name not in OWN_TOOLS]
    text = "\n".join(part for part in (storable(message.plain_text).strip(), *calls) if part)
    return cut(text, RESULT_CHARACTERS) if message.role is Role.TOOL else text


def storable(text: str) -> str:
    """`text` as SQLite can hold it: without NUL and halves of surrogate pairs."""
    text = text.replace("\0", "")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def cut(text: str, characters: int) -> str:
    """The beginning of `text`, with a note when something is missing."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]}\n[{len(text) - characters} more characters were not kept]"


def _call_text(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={_plain(value)}" for name, value in call.arguments.items())
    return storable(f"{call.name}({arguments})")


def _plain(value: Any) -> str:
    """A JSON value as words that can be searched: no escapes."""
    if isinstance(value, list):
        return f"[{', '.join(_plain(item) for item in cast(list[Any], value))}]"
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return f"{{{', '.join(f'{key}: {_plain(item)}' for key, item in items)}}}"
    return str(value)
