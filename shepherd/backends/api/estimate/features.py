"""The features of a text that determine its tokens: characters by kind, and text frames."""

import json
import re
import string
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from shepherd.backends.api.estimate.images import UNKNOWN_SIDE
from shepherd.backends.api.estimate.priors import FamilyPrior
from shepherd.images import Image
from shepherd.messages import Message, ToolSpec

Features: TypeAlias = tuple[float, ...]
"""Tokens by the prior, separately for each of `KINDS`."""

KINDS = (
    "alphabetic",
    "digits",
    "symbols",
    "spaces",
    "cjk",
    "other",
    "reasoning",
    "images",
    "frames",
)
NOTHING: Features = (0.0,) * len(KINDS)

_ALPHABETIC = (string.ascii_lowercase + string.ascii_uppercase).encode()
_DIGITS, _SPACES = string.digits.encode(), string.whitespace.encode()
_ASCII = re.compile(r"[\x00-\x7f]+")
_LATIN = re.compile(r"[\u00c0-\u024f]+")
_CJK = re.compile(
    r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef"
    r"\U00020000-\U0003ffff]+"
)


def count_kinds(text: str) -> tuple[int, int, int, int, int, int]:
    """Characters of `text` by kind: alphabetic, digits, symbols, spaces, CJK, other."""
    data = text.encode("ascii", "ignore")
    alphabetic = len(data) - len(data.translate(None, _ALPHABETIC))
    digits = len(data) - len(data.translate(None, _DIGITS))
    spaces = len(data) - len(data.translate(None, _SPACES))
    symbols = len(data) - alphabetic - digits - spaces
    if len(data) == len(text):
        return alphabetic, digits, symbols, spaces, 0, 0
    wide = _ASCII.sub("", text)
    beyond = _LATIN.sub("", wide)
    other = len(_CJK.sub("", beyond))
    alphabetic += len(wide) - len(beyond)
    return alphabetic, digits, symbols, spaces, len(beyond) - other, other


class Measure:
    """Turns messages into features; `characters_read` counts the characters that it has read."""

    def __init__(self, prior: FamilyPrior) -> None:
        self._prior = prior
        self._weights = (
            prior.alphabetic,
            prior.digits,
            prior.symbols,
            prior.spaces,
            prior.cjk,
            prior.other,
        )
        self.characters_read = 0

    def message(self, message: Message) -> Features:
        """The message with its calls, its reasoning and its images."""
        texts = [message.content]
        for call in message.tool_calls:
            texts += (call.name, call.arguments_json)
        frames = self._prior.message + self._prior.call * len(message.tool_calls)
        reasoning = sum(self._text(message.reasoning)) if message.reasoning else 0.0
        images = sum(map(self._image, message.images))
        return (*self._sum(texts), reasoning, float(images), float(frames))

    def prompt(self, system_message: str, tools: Sequence[ToolSpec]) -> Features:
        """The part before the messages: the system message and the tools with their schemas."""
        texts = [system_message]
        for tool in tools:
            schema = json.dumps(tool.parameters, ensure_ascii=False)
            texts += (tool.name, tool.description, schema)
        frames = self._prior.prompt + (self._prior.message if system_message else 0)
        frames += self._prior.tools + self._prior.tool * len(tools) if tools else 0
        return (*self._sum(texts), 0.0, 0.0, float(frames))

    def _image(self, image: Image) -> int:
        width, height = image.size
        if not width or not height:
            width = height = UNKNOWN_SIDE
        return self._prior.image.tokens(width, height)

    def _sum(self, texts: Iterable[str]) -> tuple[float, ...]:
        return tuple(sum(kind) for kind in zip(*map(self._text, texts), strict=True))

    def _text(self, text: str) -> tuple[float, ...]:
        self.characters_read += len(text)
        return tuple(
            count * weight for count, weight in zip(count_kinds(text), self._weights, strict=True)
        )


def added(parts: Iterable[Features]) -> Features:
    """The sum of features."""
    rows = list(parts)
    return tuple(sum(column) for column in zip(*rows, strict=True)) if rows else NOTHING
