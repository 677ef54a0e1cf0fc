"""Characters that hide text from a reader, and visible notations for them."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

MAX_COMBINING = 3
"""The maximum number of marks on one letter; no living script stacks more of them."""

_VISIBLE_FORMATS = frozenset(
    [*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD]
)
"""Number signs: characters of the category Cf that are visible."""
_IGNORABLE = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0x16FE4, 0x16FE4),
    (0x1D159, 0x1D159),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""Default ignorable and blank characters that can't be recognised by category."""
_BLANK_SYMBOLS = frozenset([0x2800, 0xFFFC, 0x13441, 0x13442])
_HIDDEN_CATEGORIES = frozenset(["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"])
_COMBINING = frozenset(["Mn", "Me", "Mc"])
_JOINING_JAMO = (range(0x1160, 0x1200), range(0xD7B0, 0xD800))
"""Hangul vowels and finals: letters that are drawn into the one before them."""
_NOT_ASCII_PRINTABLE = re.compile(r"[^\t\n\x20-\x7e]")
_RIGHT_TO_LEFT = frozenset(["R", "AL", "AN"])


@cache
def is_hidden(character: str) -> bool:
    """Whether a character is invisible, controls the display, or is whitespace other than a space.

    Decided by category and by Unicode's list of default ignorable characters. Tab and newline
    also count as hidden; callers that split text into lines handle them first.
    """
    code = ord(character)
    category = unicodedata.category(character)
    if category in _HIDDEN_CATEGORIES:
        return code not in _VISIBLE_FORMATS
    if category == "Zs":
        return character != " "
    return code in _BLANK_SYMBOLS or any(first <= code <= last for first, last in _IGNORABLE)


@cache
def is_combining(character: str) -> bool:
    """Whether a character is drawn over the one before it."""
    code = ord(character)
    return unicodedata.category(character) in _COMBINING or any(code in r for r in _JOINING_JAMO)


def notation(character: str) -> str:
    """`<U+200B>`."""
    return f"<U+{ord(character):04X}>"


def pieces(text: str) -> Iterable[tuple[str, bool]]:
    """The text in pieces, each with a flag: whether it is a notation for a hidden character.

    Hidden characters get a notation. So do marks without a letter, and marks beyond MAX_COMBINING
    on one letter.
    """
    if text.isascii() and text.isprintable():
        if text:
            yield text, False
        return
    plain, marks, carried = "", 0, False
    for character in text:
        combines = is_combining(character)
        marks = marks + 1 if combines else 0
        if is_hidden(character) or (combines and (not carried or marks > MAX_COMBINING)):
            if plain:
                yield plain, False
            plain = ""
            yield notation(character), True
            carried = False
        else:
            plain += character
            carried = carried if combines else character != " "
    if plain:
        yield plain, False


def reveal(text: str) -> str:
    """`text` on one line, with a notation for each hidden character."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(piece for piece, _ in pieces(text))


def count_hidden(text: str) -> int:
    """The number of hidden characters in `text`, without newlines and tabs."""
    if text.isascii() and _NOT_ASCII_PRINTABLE.search(text) is None:
        return 0
    return sum(n for c, n in Counter(text).items() if c not in "\t\n" and is_hidden(c))


def count_right_to_left(text: str) -> int:
    """The number of characters that a terminal may show in a different order."""
    if text.isascii():
        return 0
    return sum(n for c, n in Counter(text).items() if _is_right_to_left(c))


@cache
def _is_right_to_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in _RIGHT_TO_LEFT
