"""What prompts need of a model, and how untrusted text is kept from becoming a special token."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

ATTR_UNKNOWN = 1 << 0
ATTR_CONTROL = 1 << 3
ATTR_USER_DEFINED = 1 << 4
ATTR_LSTRIP = 1 << 7
ATTR_RSTRIP = 1 << 8
"""The attributes of a special token, as in llama.cpp (`llama_token_attr`)."""

SEAL = "\ufdd0"
"""Inserted after the first character of a control token's text, to make it plain text."""

CUT = "\ufdd1"
"""Inserted into markers that llama.cpp reads even in plain text: the text is split there."""

IMAGE = "\ufdd2"
"""The first and the last character of an image's mark, around a random number."""

_MARKS = re.compile(f"[{SEAL}{CUT}]")


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


class ControlToken(Struct, frozen=True):
    """A token that only a template may write."""

    id: int
    text: str
    attributes: int


class SpecialTexts:
    """The special texts of one vocabulary and template.

    Control tokens are sealed in all content. Markers are user-defined tokens that the template
    itself uses (`<tool_call>`, `<|channel|>`). They are cut only in the text of users and tools.
    """

    def __init__(self, vocab: Vocabulary, template: str) -> None:
        self.controls: dict[str, ControlToken] = {}
        markers: list[str] = []
        for token, attributes in vocab.specials.items():
            text = vocab.text(token)
            if len(text) < 2:
                continue  # no mark fits into it
            is_common = text.isspace() or text.isalnum()  # a word or an indentation is no marker
            if attributes & (ATTR_CONTROL | ATTR_UNKNOWN):
                self.controls[text] = ControlToken(token, text, attributes)
            elif text in template and not is_common:
                markers.append(text)
        self.control_ids = frozenset(control.id for control in self.controls.values())
        self.pattern = _any_of(self.controls)
        """Finds the text of each control token."""
        self._marker_pattern = _any_of(markers)
        self._beginnings = {text[:n] for text in self.controls for n in range(1, len(text))}
        """Every beginning of a control token's text."""
        self._longest_beginning = max(map(len, self._beginnings), default=0)

    def seal(self, text: str) -> str:
        """The text with all control tokens made plain, also one that only begins at the end."""
        clean = _MARKS.sub("\ufffd", text) if SEAL in text or CUT in text else text
        return self._seal_end(self.pattern.sub(_put(SEAL), clean))

    def seal_all(self, text: str) -> str:
        """Like `seal`, and for markers too: for text of users and tools."""
        return self._marker_pattern.sub(_put(CUT), self.seal(text))

    def _seal_end(self, text: str) -> str:
        """Seal the shortest ending that begins a control token, whose rest a template may write.

        The seal is inside of all longer endings too.
        """
        end = len(text.rstrip())  # a template may trim the space behind
        for length in range(1, min(self._longest_beginning, end) + 1):
            if text[end - length : end] in self._beginnings:
                behind_first = end - length + 1
                return f"{text[:behind_first]}{SEAL}{text[behind_first:]}"
        return text


def _put(mark: str) -> Callable[[re.Match[str]], str]:
    """A replacement that puts the mark behind the first character: the rest is no token then."""

    def replacement(match: re.Match[str]) -> str:
        text = match.group()
        return text[0] + mark + text[1:]

    return replacement


def without_marks(text: str) -> str:
    """Rendered text as it would be without seals and cuts."""
    return text.replace(SEAL, "").replace(CUT, "")


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches the longest of the texts at a place, nothing if there are none."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
