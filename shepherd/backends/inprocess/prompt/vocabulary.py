"""Protocols for the vocabulary and the templates of a model."""

from collections.abc import Mapping, Sequence
from typing import Protocol

ATTR_UNKNOWN = 1 << 0
ATTR_CONTROL = 1 << 3
ATTR_USER_DEFINED = 1 << 4
ATTR_LSTRIP = 1 << 7
ATTR_RSTRIP = 1 << 8
"""The attributes of a special token, as in llama.cpp (`llama_token_attr`)."""


class Vocabulary(Protocol):
    """Text to tokens and tokens to bytes."""

    @property
    def bos(self) -> int: ...

    @property
    def eos(self) -> int: ...

    @property
    def adds_bos(self) -> bool:
        """Whether each prompt begins with `bos`, even if the template does not write it."""
        ...

    @property
    def is_sentencepiece(self) -> bool:
        """Whether a space is added before a text."""
        ...

    @property
    def specials(self) -> Mapping[int, int]:
        """Each control, unknown and user-defined token, with its attributes."""
        ...

    @property
    def ends(self) -> Sequence[int]:
        """The tokens that end a generation."""
        ...

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The tokens of `text`; control tokens in it are text unless `parse_special`."""
        ...

    def piece(self, token: int) -> bytes:
        """The token's bytes, control tokens as their text; may be a part of a character."""
        ...

    def text(self, token: int) -> str:
        """The token as text, "" if there is no such token."""
        ...


class TemplateModel(Protocol):
    """The parts of a model that prompts need."""

    @property
    def vocab(self) -> Vocabulary: ...

    def chat_template(self, name: str | None = None) -> str:
        """The template called `name`, or the default one; "" if there is none."""
        ...
