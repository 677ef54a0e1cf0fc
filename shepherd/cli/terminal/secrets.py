"""Taking a key from the user without showing it."""

import re
import shlex
import sys

from shepherd.cli.terminal.errors import UsageError

STDIN = "-"
"""Stands for a key that is read, hidden from a terminal or as a line of what is piped in."""


def read_key(question: str, *, needed: bool = True) -> str:
    """A key from the terminal, hidden, or from a line of stdin.

    Raises UsageError when it is empty although it is needed.
    """
    if sys.stdin.isatty():
        from getpass import getpass

        key = getpass(question).strip()
    else:
        key = sys.stdin.readline().strip()
    if needed and not key:
        raise UsageError("The key is empty; nothing was done.")
    return key


_KEY = re.compile(r"-{1,2}api[-_]?k\w*|api[-_]key", re.IGNORECASE)
_HEADER = re.compile(r"-{1,2}headers?|headers\.\S+", re.IGNORECASE)
_PLACE = re.compile(r"-|none|file|keyring|env:\w*")
HIDDEN = "…"


def redact(text: str) -> str:
    """A command without the keys and values of headers in it, such that it asks for the keys.

    Whatever is no command stays as it is.
    """
    if not text.lstrip().startswith("/"):
        return text
    words = _words(text)
    shown = [
        _shown(word, words[place - 1] if place else "")  # the word, known by the one before it
        for place, word in enumerate(words)
    ]
    return text if shown == words else shlex.join(shown)


def _words(text: str) -> list[str]:
    """As a shell reads them, or whatever has blanks between where that would hide any."""
    if "\\" in text:
        return text.split()
    try:
        return shlex.split(text)
    except ValueError:  # a quotation without end
        return text.split()


def _shown(word: str, before: str) -> str:
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
    """What stands behind the last blank of a word that has some."""
    return (word.split() or [""])[-1]
