"""Text on its way into the store and out of it."""

from typing import Any, cast

from shepherd.messages import Message, Role, ToolCall

RESULT_CHARACTERS = 16_384
"""How much of a tool's result is kept; the beginning."""

OWN_TOOLS = frozenset({"search_memory", "set_fact", "get_fact", "clear_fact"})
"""What came out of the memory does not go into it again."""


def kept_text(message: Message) -> str:
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
