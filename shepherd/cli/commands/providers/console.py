"""The place where a provider command was typed."""

import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from shepherd.cli.commands.output import note, show
from shepherd.cli.terminal.secrets import read_key
from shepherd.config.provider_book import ProviderBook
from shepherd.errors import UsageError


class Console:
    """The shell: results go to stdout, the rest to stderr, and no running conversation follows.

    The prompt is a subclass. `command` is the beginning of the commands in this place.
    """

    command = "shepherd provider"

    def __init__(self, book: ProviderBook) -> None:
        self.book = book

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer questions."""
        return sys.stdin.isatty()

    def show(self, text: str) -> None:
        """Show the requested data."""
        show(text)

    def tell(self, text: str) -> None:
        """Report what was done."""
        note(text)

    async def read(self, question: str) -> str:
        """Read a line without an echo."""
        with _interruptible():
            return read_key(question, needed=False)

    async def switch(self, selector: str) -> bool:
        """Make the running conversation continue with that provider; returns whether it does."""
        return True

    async def before_removing(self, name: str) -> None:
        """Make the running conversation leave the provider."""

    async def after_change(self, name: str, key: str = "") -> None:
        """React to an added or removed provider, or to its changed setting `key`."""


Action: TypeAlias = Callable[[Console], Awaitable[int]]
"""A prepared command; calling it runs the command and returns the exit code."""


async def ask_key(console: Console, question: str, *, needed: bool = True) -> str:
    """Read a key without an echo; raises UsageError for an empty one if `needed`."""
    key = (await console.read(question)).strip()
    if needed and not key:
        raise UsageError("The key is empty; nothing was done.")
    return key


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl+C end a blocking read at once; an event loop would delay it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
