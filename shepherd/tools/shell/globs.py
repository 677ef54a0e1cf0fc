"""The shell's own wildcards: which files a word may stand for, and whether one is an option."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from shepherd.tools.paths import has_magic
from shepherd.tools.shell.syntax import Word

_MAX_ENTRIES = 20_000
"""Directory entries looked at for one word."""

_MAX_MAGIC_NAMES = 2
_BRACKET = re.compile(r"\[[!^]?[A-Za-z0-9_.-]+\]")


def is_wide(word: Word) -> bool:
    """Whether expanding the word could mean to walk half the disk."""
    return sum(has_magic(outline) for _, outline in _names(word)) > _MAX_MAGIC_NAMES


def expand_glob(word: Word, place: Path) -> Iterator[str]:
    """The paths that a word's wildcards meet in `place`, and more rather than fewer.

    A bracket expression, whose meaning depends on the locale, meets any character. Raises
    OverflowError if too much would have to be looked at.
    """
    if word.dynamic or is_wide(word):
        return
    yield from _Expansion(place).walk("", _names(word))


def _names(word: Word) -> list[tuple[str, str]]:
    """The names between slashes, each with its outline."""
    text, outline = word.text, word.outline
    if word.tilde:
        home = os.path.expanduser("~")  # noqa: PTH111 - a glob, not a path
        text, outline = home + text[1:], "\0" * len(home) + outline[1:]
    offset, names = 0, list[tuple[str, str]]()
    for name in text.split("/"):
        names.append((name, outline[offset : offset + len(name)]))
        offset += len(name) + 1
    return names


class _Expansion:
    def __init__(self, place: Path) -> None:
        self._place = place
        self._entries = 0

    def walk(self, head: str, names: list[tuple[str, str]]) -> Iterator[str]:
        """Paths that begin with `head` and go on with what `names` meet."""
        while names and not has_magic(names[0][1]):
            head += names[0][0] + ("/" if len(names) > 1 else "")
            names = names[1:]
        if not names:
            yield head
            return
        regex = re.compile(_name_regex(*names[0]), re.DOTALL)
        for entry in self._entries_of(head):
            if regex.fullmatch(entry):
                yield from self.walk(head + entry + ("/" if len(names) > 1 else ""), names[1:])

    def _entries_of(self, head: str) -> Iterator[str]:
        try:
            entries = os.listdir(self._place / head)  # noqa: PTH208 - names, not paths
        except OSError:
            return
        self._entries += len(entries)
        if self._entries > _MAX_ENTRIES:
            raise OverflowError("wildcards for too many files")
        yield from entries


def _name_regex(text: str, outline: str) -> str:
    """One name's wildcards; a leading dot is only met by a dot, or by what a bracket may hold."""
    hidden = outline[0] not in "*?["
    regex, at = "", 0
    while at < len(text):
        bracket = _BRACKET.match(outline, at)
        if outline[at] == "[" and bracket is None:
            return regex + ".*"
        hidden = hidden or (at == 0 and bracket is not None and "." in bracket[0])
        regex += "." if bracket else _char_regex(text[at], live=text[at] == outline[at])
        at = bracket.end() if bracket else at + 1
    return regex if hidden else rf"(?!\.){regex}"


def _char_regex(char: str, *, live: bool) -> str:
    if live and char in "*?":
        return ".*" if char == "*" else "."
    return re.escape(char)
