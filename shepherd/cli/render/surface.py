"""The interface of the rest of the terminal to its surface."""

from collections.abc import Sequence
from typing import Protocol

from shepherd.cli.approval.question import Answer, Question
from shepherd.cli.render.tool_view import FullResult
from shepherd.cli.terminal.paint import Ink, Painter, Piece


class Actions:
    """What the keys of a surface do, and what its live area shows; nothing unless overridden."""

    @property
    def busy(self) -> bool:
        """Whether there is work to stop."""
        return False

    @property
    def has_waiting(self) -> bool:
        """Whether `take_back` has a message to put back."""
        return False

    def submit(self, text: str) -> None:
        """Send a message, or run a command."""

    def stop(self) -> None:
        """End the work."""

    def leave(self) -> None:
        """End the program."""

    def turn_mode(self) -> None:
        """Change which tools run without a question."""

    def steer(self, text: str) -> None:
        """Send a message into the running turn."""

    def take_back(self) -> None:
        """Put the last waiting message back into the prompt."""

    def rewind(self) -> None:
        """Go back to an earlier message."""

    def live(self) -> Sequence[Piece]:
        """The lines above the prompt."""
        return ()

    def waiting_messages(self) -> Sequence[Piece]:
        """Those of them that a question does not hide."""
        return ()

    def status_line(self, width: int) -> str:
        """The line below the prompt."""
        return ""

    def held(self) -> str:
        """Arriving text whose final form is open."""
        return ""

    def results(self) -> Sequence[FullResult]:
        """The results that Ctrl+O shows whole."""
        return ()


class Surface(Protocol):
    """A screen with a live area, or plain output; what it does not override does nothing."""

    painter: Painter
    echoes: bool
    """Whether the terminal itself shows the user's input."""
    has_live_area: bool

    def show(self, *ink: Ink) -> None:
        """Write permanently: this output is never redrawn."""

    async def drawn(self) -> None:
        """Wait until the prompt is on the terminal."""

    def refresh(self) -> None:
        """Update the live area and the status."""

    def alert(self, text: str) -> None:
        """Draw the user's attention to the terminal, if it does not have the focus."""

    def animate(self) -> None:
        """Update the activity in the live area; called a few times each second."""

    async def ask(self, question: Question) -> Answer:
        """Wait for an answer; it is no if the user can't answer."""
        ...

    async def ask_parts(self, question: Question) -> tuple[int, ...] | None:
        """Wait for the numbers of the parts to keep; None leads back to the question."""
        ...

    async def ask_text(self, label: str) -> str:
        """Wait for a line of text."""
        ...

    async def ask_secret(self, label: str) -> str:
        """Wait for a line of text without an echo."""
        ...

    def hint(self, text: str) -> None:
        """Show a hint until the user types."""

    def idle(self) -> None:
        """All work is done: the user's turn."""

    def restore(self, text: str) -> None:
        """Put unsent text back into the prompt, before its current text."""

    async def run(self) -> None:
        """Read keys until `leave`; the terminal's mode is restored in any case."""

    def leave(self) -> None:
        """End `run`."""
