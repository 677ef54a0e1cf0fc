"""What a shell line consists of, as far as permissions need to know."""

from dataclasses import dataclass, field
from enum import StrEnum


class UnreadableError(ValueError):
    """The line has syntax that is not taken apart; nobody may claim to know what it does."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word after the removal of quotes.

    `dynamic` if it depends on more than the line: variables, substitutions, braces. `glob` and
    `tilde` tell of expansions that are still to come; `bare` that nothing in it was quoted.
    """

    text: str
    dynamic: bool = False
    glob: bool = False
    tilde: bool = False
    bare: bool = True


class Direction(StrEnum):
    """What a redirection does to its file."""

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
    """One simple command; `fed` if the line itself is its input (a here-document)."""

    words: list[Word] = field(default_factory=list[Word])
    assignments: list[Word] = field(default_factory=list[Word])
    redirects: list[Redirect] = field(default_factory=list[Redirect])
    fed: bool = False
