"""A slash command: a text in, lines out."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, ParamSpec, TypeAlias

from msgspec import Struct

from shepherd.errors import InvalidRequestError


class Note(str):
    """A remark; a terminal shows it quietly."""

    __slots__ = ()


class Diff(str):
    """Changes of files; a terminal colours them, and keeps them to be read whole."""

    __slots__ = ()


class Row(Struct, frozen=True):
    """A name and its meaning; `aside` is for a terminal, which has room for it."""

    name: str
    meaning: str
    aside: str = ""

    def __str__(self) -> str:
        return f"- {self.name}: {self.meaning}"


class Offer(Struct, frozen=True):
    """A command that the user may want next; a terminal asks the question."""

    question: str
    command: str

    def __str__(self) -> str:
        return self.command


Lines: TypeAlias = Sequence[str | Row | Offer]
"""The output of a command."""

P = ParamSpec("P")


class Command(Struct, Generic[P], frozen=True):
    """One command; the last argument of `run` is the text after its name.

    `run` returns the lines to show, or None if it has shown them itself. `usage` describes the
    text, "" if the command takes none. `choices` completes it; `by_words` adds one word of a choice
    at a time. With `is_message`, the line is sent like a message, and the conversation expands it;
    `run` is then not called. `approves` tells whether the command with a text does what the agent
    needs approval for: it changes files, or decides which calls run without a question. With
    `beside`, it can run while the model works.
    """

    name: str
    usage: str
    summary: str
    run: Callable[P, Awaitable[Lines | None]]
    choices: Callable[[], Iterable[str]] | None = None
    by_words: bool = False
    is_message: bool = False
    approves: Callable[[str], bool] = lambda _: False
    beside: bool = False


class Words(Struct, frozen=True):
    """The argument of a command: a number, 0 for none, and options."""

    number: int
    options: frozenset[str]


def parse_words(name: str, argument: str, *options: str) -> Words:
    """The words of an argument; raises InvalidRequestError for any other word."""
    words = argument.split()
    # int() takes other scripts' digits too, and is slow with very many
    numbers = [int(w) for w in words if w.isascii() and w.isdecimal() and len(w) < 10]
    chosen = frozenset(word for word in words if word in options)
    has_others = len(numbers) + len(chosen) < len(words)  # unknown or repeated words
    if len(numbers) > 1 or has_others or numbers == [0]:
        raise InvalidRequestError(f"/{name} takes a number, and {' or '.join(options)}.")
    return Words(numbers[0] if numbers else 0, chosen)
