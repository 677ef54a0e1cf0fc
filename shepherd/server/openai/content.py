"""What clients send as a message's content, as text."""

from typing import cast

from shepherd.messages import JsonObject

_TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def text_of(content: object) -> str:
    """The text of a string, null or list of parts; text parts are joined by newlines.

    Raises ValueError for anything else, images and audio included.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in cast(list[object], content))
    raise ValueError("content must be a string or a list of parts")


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise ValueError("a content part must be an object with a type")
    fields = cast(JsonObject, part)
    kind = fields.get("type")
    key = _TEXT_KEYS.get(kind) if isinstance(kind, str) else None
    if key is None:
        raise ValueError(f"content of type {kind!r} is not supported; this model reads text only")
    text: object = fields.get(key)
    if not isinstance(text, str):
        raise ValueError(f"a content part of type {kind!r} needs a string in {key!r}")
    return text
