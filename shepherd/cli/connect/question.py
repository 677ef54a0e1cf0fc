"""One question to a shared conversation, its answer on stdout."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from shepherd.backends.cliclient.client import SharedSessionClient
from shepherd.backends.cliclient.vocabulary import Event
from shepherd.cli.ask import choose_approver
from shepherd.cli.connect.remote import RemoteSession
from shepherd.cli.oneshot import EXIT_CODES
from shepherd.cli.plain import PlainOutput
from shepherd.images import Image


@dataclass(frozen=True, slots=True)
class QuestionViewer:
    """Shows what belongs to the question, and nothing else."""

    output: PlainOutput

    def event(self, event: Event, *, mine: bool) -> None:
        """Show an event of this turn."""
        if mine:
            self.output.receive(*event)

    def prompt(self, text: str) -> None:
        """What others ask is not shown."""

    def waiting(self, position: int) -> None:
        """Say how long the queue is."""
        self.output.note(f"shepherd: waiting; position {position} in the queue")

    def ended(self, *, mine: bool) -> None:
        """The asking task goes on by itself."""

    def notice(self, text: str) -> None:
        """Tell the user."""
        self.output.note(f"shepherd: {text}")


async def ask_once(client: SharedSessionClient, prompt: str, images: Sequence[Image] = ()) -> int:
    """Ask, show the answer, return the exit code; raises ShepherdError, BrokenPipeError."""
    output = PlainOutput(live=sys.stdout.isatty())
    remote = RemoteSession(client, QuestionViewer(output), choose_approver())
    async with remote.following():
        try:
            reason = await remote.ask(prompt, images)
        finally:
            output.finish()
    if output.broken:
        raise BrokenPipeError
    return EXIT_CODES.get(reason, 0)
