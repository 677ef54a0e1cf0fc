"""What the rest of the terminal needs from the place where it is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shepherd.cli.approval.question import Answer, Question
from shepherd.cli.terminal.paint import Painter, Piece


def do_nothing() -> None:
    """What a key does that has no meaning here."""


@dataclass(frozen=True, slots=True)
class Actions:
    """What keys do: `submit` takes a message, `stop` ends the work, `leave` ends the program.

    `busy` tells whether there is work to stop. `turn_mode` changes what runs without asking.
    """

    submit: Callable[[str], None]
    stop: Callable[[], None]
    leave: Callable[[], None]
    busy: Callable[[], bool]
    turn_mode: Callable[[], None] = do_nothing


class Surface(Protocol):
    """A screen with a live area, or plain output."""

    painter: Painter
    echoes: bool
    """Whether the user sees what they typed without our showing it."""

    def show(self, *pieces: Piece) -> None:
        """Write for good: what was shown is never redrawn."""
        ...

    def refresh(self) -> None:
        """The live area or the status has changed."""
        ...

    async def ask(self, question: Question) -> Answer:
        """Wait for an answer; it is no when nobody can answer."""
        ...

    async def ask_text(self, label: str) -> str:
        """Wait for a line of text."""
        ...

    async def ask_secret(self, label: str) -> str:
        """Wait for a line of text that is not shown while it is typed."""
        ...

    def hint(self, text: str) -> None:
        """A word to the user that goes away when they type."""
        ...

    def idle(self) -> None:
        """Everything is done: the user's turn."""
        ...

    def restore(self, text: str) -> None:
        """Put text that was not sent back where it can be edited, before what is there."""
        ...

    async def run(self) -> None:
        """Read keys until `leave`; the terminal's mode is restored however it ends."""
        ...

    def leave(self) -> None:
        """End `run`."""
        ...
