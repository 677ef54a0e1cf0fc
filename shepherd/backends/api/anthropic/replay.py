"""Keeps the thoughts of an answer, and sends the answer back as the API requires.

Thoughts must come back unchanged with their signatures, at their place among text and calls.
`Message.extra["anthropic"]` holds the model that thought, and the blocks in order. Text and calls
are in the message already, so the blocks only hold their places.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

from shepherd.messages import JsonObject, Message, ToolCall

API_NAME = "anthropic"

TEXT = "text"
THINKING = "thinking"
REDACTED = "redacted_thinking"
CALL = "tool_use"

THOUGHTS = (THINKING, REDACTED)

_DATE = re.compile(r"([-@](\d{8}|latest|default))?(-v\d+(:\d+)?)?$")


def keepsake(model: str, blocks: Sequence[JsonObject]) -> JsonObject | None:
    """The part of the blocks to keep with the message; None without a signed block."""
    places = [place for block in blocks if (place := _place(block)) is not None]
    if not any(place["type"] in THOUGHTS for place in places):
        return None
    return {"model": model, "blocks": places}


def assistant_blocks(message: Message, model: str) -> list[JsonObject]:
    """The blocks of an answer, never an empty one; `model` "" leaves out the thoughts.

    Only thoughts of this model go back, because it can't read those of others. They also need an
    unchanged message, because they are not valid elsewhere.
    """
    replayed = _replayed(message, model) if model else None
    plain = [_text_block(message.content), *map(_call_block, message.tool_calls)]
    return [block for block in (plain if replayed is None else replayed) if block is not None]


def _replayed(message: Message, model: str) -> list[JsonObject | None] | None:
    """The blocks at their places; None if there are no thoughts, or none that fit."""
    kept = message.extra.get(API_NAME, {})
    places: Any = kept.get("blocks")
    if not isinstance(places, list) or not _same_model(str(kept.get("model", "")), model):
        return None
    calls, content = list(message.tool_calls), message.content
    blocks: list[JsonObject | None] = []
    for place in cast(list[Any], places):
        match place:
            case {"type": "text", "length": int(length)} if 0 < length <= len(content):
                blocks.append(_text_block(content[:length]))
                content = content[length:]
            case {"type": "tool_use"} if calls:
                blocks.append(_call_block(calls.pop(0)))
            case {"type": str()} if thought := _thought(cast(JsonObject, place)):
                blocks.append(thought)
            case _:
                return None
    return None if calls or content else blocks


def _same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model, in any vendor's spelling, with or without a date."""
    return _plain_name(one) == _plain_name(other)


def _plain_name(model: str) -> str:
    name = _DATE.sub("", model)
    return name[name.find("claude") :].replace(".", "-") if "claude" in name else name


def _place(block: JsonObject) -> JsonObject | None:
    match block:
        case {"type": "text", "text": str(text)} if text:
            return {"type": TEXT, "length": len(text)}
        case {"type": "tool_use"}:
            return {"type": CALL}
        case _:
            return _thought(block)


def _thought(block: JsonObject) -> JsonObject | None:
    """The block to send back, if it is a thought and signed."""
    match block:
        case {"type": "thinking", "thinking": str(text), "signature": str(signature)} if signature:
            return {"type": THINKING, "thinking": text, "signature": signature}
        case {"type": "redacted_thinking", "data": str(data)} if data:
            return {"type": REDACTED, "data": data}
        case _:
            return None


def _text_block(text: str) -> JsonObject | None:
    return {"type": TEXT, "text": text} if text.strip() else None


def _call_block(call: ToolCall) -> JsonObject:
    return {"type": CALL, "id": call.id, "name": call.name, "input": call.arguments}
