"""The parts of a shell line, as far as permissions need them."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby


class UnreadableError(ValueError):
    """The line has syntax that is not supported, so its effects are unknown."""


@dataclass(frozen=True, slots=True)
class Word:
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
        pairs = zip(self.text, self.outline, strict=True)
        runs = groupby(pairs, key=lambda pair: pair[0] == pair[1])
        parts = (("".join(char for char, _ in run), live) for live, run in runs)
        quote = _quote_all if "[" in self.outline else shlex.quote
        return "".join(text if live else quote(text) for text, live in parts)


def _quote_all(text: str) -> str:
    """The text in quotes, unless it has no meaning in a bracket expression."""
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


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection from or to a file."""

    direction: Direction
    target: Word


@dataclass(slots=True)
class Command:
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
