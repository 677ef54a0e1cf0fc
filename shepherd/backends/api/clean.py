"""Text and values that can stand in JSON, whatever a model or a file put into them."""

import math
from typing import cast

from shepherd.messages import JsonObject


def clean_text(text: str) -> str:
    """The text with half pairs, which UTF-8 has not, as question marks."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def clean_object(value: JsonObject) -> JsonObject:
    """The object with clean texts, and without numbers that JSON has not: they become null."""
    return {clean_text(str(key)): _clean(inner) for key, inner in value.items()}


def _clean(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return clean_object(cast(JsonObject, value))
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in cast(list[object], value)]
    return value
