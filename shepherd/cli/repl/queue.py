"""Inputs that wait while the model works: for its next step, or for the end of the turn."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from rich.text import Text

from shepherd.cli.terminal.paint import Piece
from shepherd.cli.terminal.sanitize import one_line
from shepherd.cli.terminal.secrets import redact
from shepherd.errors import ShepherdError


class WorkQueue:
    """Messages and commands, here called texts, in the order in which they were sent.

    `handle` runs one; `interrupted` is called if it was stopped, `idle` when the queue is empty.
    """

    def __init__(
        self,
        handle: Callable[[str], Coroutine[Any, Any, None]],
        interrupted: Callable[[], None],
        idle: Callable[[], None],
    ) -> None:
        self.waiting: list[str] = []
        self.is_held = False
        """Whether the waiting texts stay until the user sends another one; see `hold`."""
        self._handle = handle
        self._interrupted = interrupted
        self._idle = idle
        self._arrived = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        """The task of the running text."""

    @property
    def busy(self) -> bool:
        """Whether a text is running."""
        return self._running is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the running text was stopped and has not ended yet."""
        return self._running is not None and self._running.cancelling() > 0

    def add(self, text: str) -> None:
        """Put `text` at the end, or before the texts that `hold` keeps back; these follow it."""
        # what the user sends next is meant to be done first
        self.waiting.insert(0 if self.is_held else len(self.waiting), text)
        self.is_held = False
        self._arrived.set()

    def hold(self, texts: list[str]) -> None:
        """Keep `texts` until the next one is added: after a stop, nothing runs by itself."""
        self.waiting += texts
        self.is_held = bool(self.waiting)

    def put_first(self, texts: list[str]) -> None:
        """Put `texts` at the front."""
        if texts:
            self.waiting[:0] = texts
            self._arrived.set()

    def stop(self) -> list[str]:
        """Stop the running text; returns the waiting ones, which are dropped too."""
        if self._running is None or self.is_stopping:  # a second press stops nothing
            return []
        waiting, self.waiting = self.waiting, []
        self._running.cancel()
        return waiting

    async def run(self) -> None:
        """Run texts until cancelled; raises the errors of `handle`."""
        while True:
            while self.waiting and not self.is_held:
                await self._run_one(self.waiting.pop(0))
            self._arrived.clear()  # before `idle`, which may add a text
            self._idle()
            await self._arrived.wait()

    async def _run_one(self, text: str) -> None:
        """Run a text as a task of its own, which `stop` can cancel without ending the queue."""
        task = self._running = asyncio.ensure_future(self._handle(text))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:  # the program ends
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        finally:
            self._running = None
        if task.cancelled():
            self._interrupted()
        else:
            task.result()  # raises its error


MAX_SHOWN = 60
WHILE_TYPING = "  Enter: after this turn. Tab: now, at the next step of the model."
TYPING_COMMAND = "  Enter: after this turn."
TYPING_BESIDE = "  Enter: now, while the model works."
WHILE_WAITING = "  Up takes the last message back. Tab sends the first one now."
COMMAND_WAITS = "  Up takes the last message back."
WHILE_HELD = "  These follow what you send next. Up takes the last message back."


def is_command(text: str) -> bool:
    """Whether a text is no message for the model, so that it can't join a turn."""
    return text.lstrip().startswith(("/", "!"))


class Steering(Protocol):
    """Messages for the running turn; without `can_steer`, none can join it."""

    can_steer: bool = False

    @property
    def waiting(self) -> Sequence[str]:
        """The messages that have not joined the turn, as far as they can be withdrawn."""
        return ()

    async def send(self, text: str) -> None:
        """Let a message join the running turn; raises ShepherdError if it can't be sent."""

    def take_back(self) -> str | None:
        """Withdraw the last message that has not joined; None if there is none."""
        return None


class WaitingMessages:
    """The messages in the queue of a terminal, and those for the running turn.

    `restore` puts a text back into the prompt, and `report` shows an error.
    """

    def __init__(
        self,
        queue: WorkQueue,
        steering: Steering,
        restore: Callable[[str], None],
        report: Callable[[str], None],
    ) -> None:
        self._steering = steering
        self._queue = queue
        self._restore = restore
        self._report = report
        self._sending: set[asyncio.Task[None]] = set()
        """The tasks that send a message, kept because asyncio does not keep them."""

    @property
    def is_empty(self) -> bool:
        """Whether no message waits."""
        return not (self._queue.waiting or self._steering.waiting)

    def steer(self, text: str) -> None:
        """Send `text`, or the first waiting message, into the running turn.

        Commands, and messages while nothing runs or what runs is being stopped, wait instead.
        """
        is_first_waiting = not text.strip() and bool(self._queue.waiting)
        if is_first_waiting:
            text = self._queue.waiting.pop(0)
        if not text.strip():
            return
        is_taken = self._steering.can_steer and self._queue.busy and not self._queue.is_stopping
        if not is_taken or is_command(text):
            if is_first_waiting:  # it keeps its turn
                self._queue.put_first([text])
            else:
                self._queue.add(text)
            return
        task = asyncio.ensure_future(self._send(text))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def take_back(self) -> None:
        """Put the last waiting message back into the prompt."""
        if self._queue.waiting:
            self._restore(self._queue.waiting.pop())
        elif (text := self._steering.take_back()) is not None:
            self._restore(text)

    def collect(self) -> None:
        """Put the messages that a turn did not use at the front of the queue."""
        self._queue.put_first(self.take_steering())

    def take_steering(self) -> list[str]:
        """Withdraw the messages for the running turn."""
        texts: list[str] = []
        while (text := self._steering.take_back()) is not None:  # the last one is first
            texts.insert(0, text)
        return texts

    def messages(self) -> list[Piece]:
        """The waiting messages, a line each."""
        labels = [("next step", text) for text in self._steering.waiting]
        labels += [("waiting", text) for text in self._queue.waiting]
        lines = [f"  {label}: {one_line(redact(text), MAX_SHOWN)}" for label, text in labels]
        return [Piece(Text(line, style="quiet")) for line in lines]

    def pieces(self, typed: str, *, beside: bool) -> list[Piece]:
        """The waiting messages, and the keys for them; those to send a text if one is `typed`.

        `beside` tells whether that is a command that runs while the model works.
        """
        keys = ""
        if self._queue.busy and beside:
            keys = TYPING_BESIDE
        elif self._steering.can_steer and self._queue.busy and typed:
            keys = TYPING_COMMAND if is_command(typed) else WHILE_TYPING
        elif self._queue.is_held:
            keys = WHILE_HELD
        elif self._steering.can_steer and self._queue.waiting:
            keys = COMMAND_WAITS if is_command(self._queue.waiting[0]) else WHILE_WAITING
        return [*self.messages(), *([Piece(Text(keys, style="quiet"))] if keys else [])]

    async def _send(self, text: str) -> None:
        """Send a text into the turn; one that is refused goes back into the prompt."""
        try:
            await self._steering.send(text)
        except ShepherdError as error:
            self._report(str(error))
            self._restore(text)
        if not self._queue.busy:  # the turn has ended meanwhile, and nothing else collects it
            self.collect()
