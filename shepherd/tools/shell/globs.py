"""Expands the shell's wildcards: the files that a word may stand for."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from shepherd.tools.paths import expand_home, has_magic
from shepherd.tools.shell.syntax import Word

_MAX_ENTRIES = 20_000
"""The maximum number of directory entries to read for one word."""

_MAX_MAGIC_NAMES = 2
_BRACKET = re.compile(r"\[[!^]?[A-Za-z0-9_.-]+\]")


def is_wide(word: Word) -> bool:
    """Whether expanding the word could read a large part of the disk."""
    return sum(has_magic(outline) for _, outline in _names(word)) > _MAX_MAGIC_NAMES


def expand_glob(word: Word, place: Path) -> Iterator[str]:
    """The paths that a word's wildcards match in `place`; rather too many than too few.

    A bracket expression matches any character, because its meaning depends on the locale. Raises
    OverflowError if there are too many entries to read.
    """
    if word.dynamic or is_wide(word):
        return
    yield from _Expansion(place).walk("", _names(word))


def _names(word: Word) -> list[tuple[str, str]]:
    """The names between slashes, each with its outline."""
    text, outline = word.text, word.outline
    if word.tilde:
        home = expand_home("~")
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
        """Paths that begin with `head` and continue with matches of `names`."""
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
            with os.scandir(self._place / head) as listing:
                entries = [entry.name for entry in listing]
        except OSError:
            return
        self._entries += len(entries)
        if self._entries > _MAX_ENTRIES:
            raise OverflowError("wildcards for too many files")
        yield from entries


def _name_regex(text: str, outline: str) -> str:
    """The expression of one name; only a dot or a bracket expression matches a leading dot."""
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
