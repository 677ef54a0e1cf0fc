"""The parts of a shell line, as far as permissions need them."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import groupby
from pathlib import Path

from msgspec import Struct, field

from shepherd.tools.paths import expand_home, has_magic


class UnreadableError(ValueError):
    """The line has syntax that is not supported, so its effects are unknown."""


class Word(Struct, frozen=True):
    """A word after the removal of quotes.

    `dynamic` means that it depends on more than the line: variables, substitutions, braces.
    `glob` and `tilde` mean that the shell will expand it. `bare` means that nothing in it was
    quoted. `outline` is the text with a NUL for each quoted character; "" if all of it was quoted.
    `assignment` means that it sets a variable before a command.
    """

    text: str
    dynamic: bool = False
    glob: bool = False
    tilde: bool = False
    bare: bool = True
    outline: str = ""
    assignment: bool = False

    @property
    def canonical(self) -> str:
        """The word in shell quoting: `*` is a wildcard, `'*'` is the character."""
        if not (self.glob or self.tilde):
            return shlex.quote(self.text)
        # in `a*"b*"`, whose outline is `a*` and two NUL, `a*` is unquoted and `b*` is quoted
        pairs = zip(self.text, self.outline, strict=True)
        runs = groupby(pairs, key=lambda pair: pair[0] == pair[1])
        quote = _quote_in_brackets if "[" in self.outline else shlex.quote
        result = ""
        for is_unquoted, run in runs:
            text = "".join(char for char, _ in run)
            result += text if is_unquoted else quote(text)
        return result


def _quote_in_brackets(text: str) -> str:
    """The text in quotes, unless it has no meaning in a bracket expression (as `-` and `!`)."""
    return text if text.isalnum() else "'" + text.replace("'", "'\"'\"'") + "'"


def literal(text: str) -> Word:
    """A word in which no character has a special meaning."""
    return Word(text, bare=False)


def command_text(words: Iterable[Word]) -> str:
    """Words in canonical shell quoting, which keeps wildcards and characters apart."""
    return " ".join(word.canonical for word in words)


class Direction(StrEnum):
    """The effect of a redirection on its file."""

    READ = "read"
    WRITE = "write"
    BOTH = "both"


class Redirect(Struct, frozen=True):
    """A redirection from or to a file."""

    direction: Direction
    target: Word


class Command(Struct):
    """One simple command.

    `fed` means that its input comes from the line (a here-document); `piped`, from another
    command. `detached` means that it follows `&>`, where some shells begin a new command.
    """

    words: list[Word] = field(default_factory=list[Word])
    assignments: list[Word] = field(default_factory=list[Word])
    redirects: list[Redirect] = field(default_factory=list[Redirect])
    fed: bool = False
    piped: bool = False
    detached: bool = False

    @property
    def program(self) -> str:
        """The first word; "" if there is none."""
        return self.words[0].text if self.words else ""

    @property
    def texts(self) -> list[str]:
        """The program and its arguments as plain text."""
        return [word.text for word in self.words]


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
    if word.tilde:  # the home directory counts as quoted: no character of it is a wildcard
        home = expand_home("~")
        text, outline = home + text[1:], "\0" * len(home) + outline[1:]
    offset, names = 0, list[tuple[str, str]]()
    for name in text.split("/"):
        names.append((name, outline[offset : offset + len(name)]))
        offset += len(name) + 1
    return names


class _Expansion(Struct):
    """The expansion of one word, which reads a limited number of directory entries."""

    place: Path
    entries_read: int = 0

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
        """The names in a directory; raises OverflowError after too many in all."""
        try:
            with os.scandir(self.place / head) as listing:
                entries = [entry.name for entry in listing]
        except OSError:
            return  # no directory: the wildcard matches nothing in it
        self.entries_read += len(entries)
        if self.entries_read > _MAX_ENTRIES:
            raise OverflowError("wildcards for too many files")
        yield from entries


def _name_regex(text: str, outline: str) -> str:
    """The expression of one name; only a dot or a bracket expression matches a leading dot.

    `outline` is the text with a NUL for each quoted character: only the others can be wildcards.
    """
    may_be_hidden = outline[0] not in "*?["
    regex, at = "", 0
    while at < len(text):
        char, step = outline[at], 1
        if char == "[":
            bracket = _BRACKET.match(outline, at)
            if bracket is None:
                return regex + ".*"  # not read in full: it may match anything
            may_be_hidden = may_be_hidden or (at == 0 and "." in bracket[0])
            regex, step = regex + ".", len(bracket[0])
        elif char in "*?":
            regex += ".*" if char == "*" else "."
        else:
            regex += re.escape(text[at])
        at += step
    return regex if may_be_hidden else rf"(?!\.){regex}"
