"""The interface of the rest of the terminal to its surface."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shepherd.cli.approval.question import Answer, Question
from shepherd.cli.render.tool_view import FullResult
from shepherd.cli.terminal.paint import Ink, Painter, Piece


def do_nothing() -> None:
    """The action of a key without a meaning here."""


def do_nothing_with(_text: str) -> None:
    """The action of a key with a text, without a meaning here."""


@dataclass(frozen=True, slots=True)
class View:
    """What a screen shows beside its permanent output; each redraw asks for it.

    `live` are the lines above the prompt, and `status` is the line below it. `held` is arriving
    text whose final form is open. `results` are read whole after Ctrl+O.
    """

    live: Callable[[], Sequence[Piece]] = tuple
    status: Callable[[int], str] = lambda _width: ""
    held: Callable[[], str] = str
    results: Callable[[], Sequence[FullResult]] = tuple


@dataclass(frozen=True, slots=True)
class Actions:
    """Callbacks of keys: `submit` sends a message, `stop` ends the work, `leave` the program.

    `busy` tells whether there is work to stop. `turn_mode` changes which tools run without a
    question. `steer` sends a message into the running turn. `take_back` puts the last waiting
    message back into the prompt, if `has_waiting`. `rewind` goes back to an earlier message. `view`
    is what a screen shows.
    """

    submit: Callable[[str], None]
    stop: Callable[[], None]
    leave: Callable[[], None]
    busy: Callable[[], bool]
    turn_mode: Callable[[], None] = do_nothing
    steer: Callable[[str], None] = do_nothing_with
    take_back: Callable[[], None] = do_nothing
    has_waiting: Callable[[], bool] = bool
    rewind: Callable[[], None] = do_nothing
    view: View = View()


class Surface(Protocol):
    """A screen with a live area, or plain output."""

    painter: Painter
    echoes: bool
    """Whether the terminal itself shows the user's input."""
    has_live_area: bool

    def show(self, *ink: Ink) -> None:
        """Write permanently: this output is never redrawn."""
        ...

    def refresh(self) -> None:
        """Update the live area and the status."""
        ...

    def alert(self, text: str) -> None:
        """Draw the user's attention to the terminal, if it does not have the focus."""
        ...

    def animate(self) -> None:
        """Update the activity in the live area; called a few times each second."""
        ...

    async def ask(self, question: Question) -> Answer:
        """Wait for an answer; it is no if the user can't answer."""
        ...

    async def ask_text(self, label: str) -> str:
        """Wait for a line of text."""
        ...

    async def ask_secret(self, label: str) -> str:
        """Wait for a line of text without an echo."""
        ...

    def hint(self, text: str) -> None:
        """Show a hint until the user types."""
        ...

    def idle(self) -> None:
        """All work is done: the user's turn."""
        ...

    def restore(self, text: str) -> None:
        """Put unsent text back into the prompt, before its current text."""
        ...

    async def run(self) -> None:
        """Read keys until `leave`; the terminal's mode is restored in any case."""
        ...

    def leave(self) -> None:
        """End `run`."""
        ...
