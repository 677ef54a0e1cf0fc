"""Taking a key from the user without showing it."""

import sys

from shepherd.cli.errors import UsageError

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
