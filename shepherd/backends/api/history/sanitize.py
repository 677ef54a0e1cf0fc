"""Makes text and values valid for JSON, whatever a model or a file put into them."""

import math
from typing import cast

from shepherd.messages import JsonObject


def clean_text(text: str) -> str:
    """The text with surrogates, which UTF-8 does not allow, as question marks."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def sanitize_object(value: JsonObject) -> JsonObject:
    """The object with clean texts; numbers that JSON does not allow become null."""
    return {clean_text(str(key)): _clean(inner) for key, inner in value.items()}


def _clean(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return sanitize_object(cast(JsonObject, value))
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in cast(list[object], value)]
    return value


_FIRST_HALVES = ("\ud800", "\udbff")


class SurrogateJoiner:
    """Joins characters whose two surrogates a server sent in separate pieces.

    JSON may write a character beyond the first 65,536 as two escapes, and some servers split
    between them. A surrogate without the other becomes U+FFFD, so that the result can be encoded.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The text so far, except a surrogate at its end."""
        if not self._held and text.isascii():
            return text
        text = self._held + text
        self._held = ""
        if text and _FIRST_HALVES[0] <= text[-1] <= _FIRST_HALVES[1]:
            text, self._held = text[:-1], text[-1]
        return replace_surrogates(text)

    def finish(self) -> str:
        """The remaining surrogate, if any."""
        left, self._held = self._held, ""
        return replace_surrogates(left)


def replace_surrogates(text: str) -> str:
    """The text with its surrogates joined, and U+FFFD for single ones."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
