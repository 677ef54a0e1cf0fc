"""Reads a key from the user without showing it, and interrupts what waits for one."""

import re
import shlex
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from getpass import getpass
from itertools import pairwise

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


@contextmanager
def interrupted_by(number: signal.Signals) -> Generator[None]:
    """Let a signal raise KeyboardInterrupt at once in the main thread, as Ctrl+C does."""
    previous = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


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
    # the first word has none before it
    redacted = [_redacted_word(word, before) for before, word in pairwise(["", *words])]
    # joining would change the quotation marks of a command that has no secret
    return text if redacted == words else shlex.join(redacted)


def _words(text: str) -> list[str]:
    """The words as a shell splits them, or split at whitespace if that would hide some."""
    if "\\" in text:  # before a blank, it joins two words, and the second may be a secret
        return text.split()
    try:
        return shlex.split(text)
    except ValueError:  # an open quotation
        return text.split()


def _redacted_word(word: str, before: str) -> str:
    """A word without its secret: `--api-key=sk-1` is `--api-key=-`, and `sk-1` after it `-`.

    `before` is the word before it. The name of a place, such as `env:KEY`, is no secret. A key
    becomes STDIN, which the option also accepts; no word does that for a header.
    """
    # a quoted word may have blanks, and the option after the last of them
    for assignment in (word, _after_last_blank(word)):
        name, equals, value = assignment.partition("=")
        if equals and _KEY.fullmatch(name):
            return word if _PLACE.fullmatch(value) else f"{name}={STDIN}"
        if equals and _HEADER.fullmatch(name):
            return f"{name}={HIDDEN}"
    option = _after_last_blank(before)
    if _KEY.fullmatch(option):
        return word if _PLACE.fullmatch(word) else STDIN
    return HIDDEN if _HEADER.fullmatch(option) else word


def _after_last_blank(word: str) -> str:
    """The last part of a word that was quoted; "" if it has blanks alone."""
    return (word.split() or [""])[-1]
