"""Where commands about providers talk with the user: the shell here, the prompt elsewhere."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from shepherd.cli.terminal.errors import UsageError
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.cli.terminal.secrets import read_key
from shepherd.config.provider_book import ProviderBook


class Console(Protocol):
    """What a command needs of the place where it was typed."""

    @property
    def book(self) -> ProviderBook:
        """The providers that there are."""
        ...

    @property
    def command(self) -> str:
        """How the commands begin there."""
        ...

    @property
    def can_ask(self) -> bool:
        """Whether a person is there."""
        ...

    def show(self, text: str) -> None:
        """Give what was asked for."""
        ...

    def tell(self, text: str) -> None:
        """Say what was done."""
        ...

    async def read(self, question: str) -> str:
        """A line that is not shown while it is typed."""
        ...

    async def switch(self, selector: str) -> bool:
        """Let what runs go on with that provider; whether it does."""
        ...

    async def before_removing(self, name: str) -> None:
        """Let what runs leave the provider."""
        ...

    async def after_change(self, name: str, key: str = "") -> None:
        """The provider was added or removed, or its setting `key` was changed."""
        ...


Action: TypeAlias = Callable[[Console], Awaitable[int]]
"""A command with its options, still to be done; gives the exit code."""


async def ask_key(console: Console, question: str, *, needed: bool = True) -> str:
    """A key, which is not shown; raises UsageError when it is empty although it is needed."""
    key = (await console.read(question)).strip()
    if needed and not key:
        raise UsageError("The key is empty; nothing was done.")
    return key


class ShellConsole:
    """Results on stdout, the rest on stderr; nothing runs that would have to follow."""

    command = "shepherd provider"

    def __init__(self) -> None:
        self.book = ProviderBook.from_env(os.environ)

    @property
    def can_ask(self) -> bool:
        return sys.stdin.isatty()

    def show(self, text: str) -> None:
        sys.stdout.write(f"{sanitize(text)}\n")
        sys.stdout.flush()

    def tell(self, text: str) -> None:
        sys.stderr.write(f"{sanitize(text)}\n")

    async def read(self, question: str) -> str:
        with _interruptible():
            return read_key(question, needed=False)

    async def switch(self, selector: str) -> bool:
        return True

    async def before_removing(self, name: str) -> None:
        pass

    async def after_change(self, name: str, key: str = "") -> None:
        pass


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl+C end a blocking read at once, which an event loop would put off."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
