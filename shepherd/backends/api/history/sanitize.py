"""Text and values that can stand in JSON, whatever a model or a file put into them."""

import math
from typing import cast

from shepherd.messages import JsonObject


def clean_text(text: str) -> str:
    """The text with half pairs, which UTF-8 has not, as question marks."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def sanitize_object(value: JsonObject) -> JsonObject:
    """The object with clean texts, and without numbers that JSON has not: they become null."""
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
    """Puts letters together of which a server sent the halves in two pieces.

    JSON may name a letter beyond the first 65,536 by two escapes, and servers that count in them
    cut between. A half without the other becomes U+FFFD, so that what comes out can be written.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The text so far, but for a half at its end."""
        if not self._held and text.isascii():
            return text
        text = self._held + text
        self._held = ""
        if text and _FIRST_HALVES[0] <= text[-1] <= _FIRST_HALVES[1]:
            text, self._held = text[:-1], text[-1]
        return replace_surrogates(text)

    def finish(self) -> str:
        """What is left."""
        left, self._held = self._held, ""
        return replace_surrogates(left)


def replace_surrogates(text: str) -> str:
    """The text with its halves put together, and U+FFFD for those that are alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
