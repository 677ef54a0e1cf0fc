"""Reads a key from the user without showing it."""

import re
import shlex
import sys
from getpass import getpass

from shepherd.errors import UsageError

STDIN = "-"
"""Stands for a key that is read from a terminal without an echo, or from a line of stdin."""


def read_key(question: str, *, needed: bool = True) -> str:
    """A key from the terminal, hidden, or from a line of stdin.

    Raises UsageError for an empty key if `needed`.
    """
    key = getpass(question).strip() if sys.stdin.isatty() else sys.stdin.readline().strip()
    if needed and not key:
        raise UsageError("The key is empty; nothing was done.")
    return key


_KEY = re.compile(r"-{1,2}api[-_]?k\w*|api[-_]key", re.IGNORECASE)
_HEADER = re.compile(r"-{1,2}headers?|headers\.\S+", re.IGNORECASE)
_PLACE = re.compile(r"-|none|file|keyring|env:\w*")
HIDDEN = "…"


def redact(text: str) -> str:
    """A command without keys and values of headers; it then asks for the keys.

    Text that is not a command does not change.
    """
    if not text.lstrip().startswith("/"):
        return text
    words = _words(text)
    redacted = [
        _redacted_word(word, before) for before, word in zip(["", *words], words, strict=False)
    ]
    return text if redacted == words else shlex.join(redacted)


def _words(text: str) -> list[str]:
    """The words as a shell splits them, or split at whitespace if that would hide some."""
    if "\\" in text:
        return text.split()
    try:
        return shlex.split(text)
    except ValueError:  # an open quotation
        return text.split()


def _redacted_word(word: str, before: str) -> str:
    for part in (word, _end(word)):
        name, equals, value = part.partition("=")
        if equals and _KEY.fullmatch(name):
            return word if _PLACE.fullmatch(value) else f"{name}={STDIN}"
        if equals and _HEADER.fullmatch(name):
            return f"{name}={HIDDEN}"
    if _KEY.fullmatch(_end(before)):
        return word if _PLACE.fullmatch(word) else STDIN
    return HIDDEN if _HEADER.fullmatch(_end(before)) else word


def _end(word: str) -> str:
    """The text after the last whitespace of a word."""
    return (word.split() or [""])[-1]
