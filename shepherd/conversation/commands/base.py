"""A command, and the words of its argument."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shepherd.conversation.conversation import Conversation
from shepherd.errors import InvalidRequestError


def _never(_argument: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Command:
    """A command; `run` gets the text after its name, and returns the text to show.

    `hint` describes that text, "" if there is none. `approves` tells whether the command with an
    argument does what the agent needs approval for: it changes files, or decides which calls run
    without a question.
    """

    name: str
    description: str
    run: Callable[[Conversation, str], Awaitable[str]]
    hint: str = ""
    approves: Callable[[str], bool] = _never


@dataclass(frozen=True, slots=True)
class Words:
    """The argument of a command: a number, 0 for none, and options."""

    number: int
    options: frozenset[str]


def parse_words(name: str, argument: str, *options: str) -> Words:
    """The words of an argument; raises InvalidRequestError for any other word."""
    words = argument.split()
    numbers = [int(w) for w in words if w.isascii() and w.isdecimal() and len(w) < 10]
    chosen = frozenset(word for word in words if word in options)
    if len(numbers) > 1 or len(numbers) + len(chosen) < len(words):
        raise InvalidRequestError(f"/{name} takes a number, and {' or '.join(options)}.")
    return Words(numbers[0] if numbers else 0, chosen)
