"""One turn of a conversation as an iterator of its events, and the answer that they make."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self, TypeAlias

from msgspec import Struct

from shepherd import events, messages
from shepherd.turn import TurnOutcome


class Answer(Struct, frozen=True):
    """The result of a turn: the text and the reasoning after the last result of a tool.

    `problem` says why the turn was stopped, "" if it was not.
    """

    text: str
    thinking: str = ""
    reason: events.FinishReason = events.FinishReason.STOP
    tool_calls: tuple[messages.ToolCall, ...] = ()
    stats: tuple[events.Stats, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        return self.text


class End(Struct, frozen=True):
    """The last event of a turn."""

    answer: Answer


Event: TypeAlias = (
    events.Text
    | events.Thinking
    | messages.ToolCall
    | events.ToolResult
    | events.Notice
    | events.Stats
    | End
)
"""One of a turn's events; a `CodeBlock` is a `Text`.

Progress and plans are notices here. What a turn's end or an exception contains is left out.
"""


def answer_of(turn: Sequence[Event], reason: events.FinishReason, problem: str) -> Answer:
    """The answer that the events of a turn make: its texts are those after the last result."""
    start = 0
    for place, event in enumerate(turn):
        if isinstance(event, events.ToolResult):
            start = place + 1
    last_step = turn[start:]
    return Answer(
        text="".join(event.text for event in last_step if isinstance(event, events.Text)),
        thinking="".join(event.text for event in last_step if isinstance(event, events.Thinking)),
        reason=reason,
        tool_calls=tuple(event for event in turn if isinstance(event, messages.ToolCall)),
        stats=tuple(event for event in turn if isinstance(event, events.Stats)),
        problem=problem,
    )


RunTurn: TypeAlias = Callable[[events.EventCallback], Coroutine[Any, Any, TurnOutcome]]


class TurnWork:
    """The task behind a turn, and the events that wait to be read."""

    def __init__(self, run: RunTurn) -> None:
        self._run_turn = run
        self._emitted: list[Event] = []
        """All events so far, which make the answer at the end."""
        self._problem = ""
        self._task: asyncio.Task[None] | None = None
        self.cancelled = False
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()
        """The events that wait to be read; None is behind the last one."""

    @property
    def running(self) -> bool:
        """Whether it has started and not ended."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start to work."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(_retrieve)

    def emit(self, event: Event) -> None:
        """Send an event."""
        self._emitted.append(event)
        self.events.put_nowait(event)

    def cancel(self) -> None:
        """Stop; the turn then ends as cancelled."""
        self.cancelled = True
        if self._task is not None:
            self._task.cancel()

    def abandon(self) -> None:
        """Stop soon: the events have no reader any more. Any thread may call it."""
        self.cancelled = True
        task = self._task
        if task is not None and not task.done() and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(task.cancel)

    async def wait(self) -> None:
        """Return when the work has ended, with or without an error."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def raise_failure(self) -> None:
        """Raise the error that ended the work, if any."""
        if self._task is not None:
            self._task.result()

    async def _run(self) -> None:
        """The turn's task; it puts None behind the last event, also after an error."""
        reason = events.FinishReason.CANCELLED
        try:
            if not self.cancelled:
                reason = (await self._run_turn(self._receive)).finish_reason
            self._end(reason)
        except asyncio.CancelledError:
            if not self.cancelled:  # the program ends all of its tasks: this one ends, too
                raise
            self._end(events.FinishReason.CANCELLED)
        finally:
            self.events.put_nowait(None)

    def _end(self, reason: events.FinishReason) -> None:
        self.emit(End(answer_of(self._emitted, reason, self._problem)))

    def _receive(self, event: events.Event) -> bool:
        """Pass on an event of the turn in the words of this interface; False ends the turn."""
        match event:
            case events.Failure():
                self._problem = event.message
            case events.PrefillProgress() | events.PlanUpdate():
                self.emit(event.notice)
            case events.UserPrompt() | events.Stop():  # `End` tells the reason
                pass
            case _:
                self.emit(event)
        return not self.cancelled


class Turn(AsyncIterator[Event]):
    """The events of one turn, the last one an `End`; the turn starts with the first read.

    A turn whose iterator is dropped, as after `break`, is cancelled. Reading raises ShepherdError
    if the model can't answer.
    """

    def __init__(self, work: TurnWork, begin: Callable[[TurnWork], Awaitable[None]]) -> None:
        self._work = work
        self._begin: Callable[[TurnWork], Awaitable[None]] | None = begin
        """Starts the turn; None once it was called."""
        self._has_ended = False
        # at the end of the program there is no event loop any more that could cancel the turn
        weakref.finalize(self, work.abandon).atexit = False

    async def __anext__(self) -> Event:
        if self._has_ended:
            raise StopAsyncIteration
        try:
            if self._begin is not None:
                begin, self._begin = self._begin, None
                await begin(self._work)
            event = await self._work.events.get()
        except BaseException:  # a reader that was cancelled reads no further
            await self.aclose()
            raise
        if event is None:
            self._has_ended = True
            self._work.raise_failure()
            raise StopAsyncIteration
        return event

    def cancel(self) -> None:
        """Stop the turn; its last event is then an `End` with the reason `cancelled`."""
        self._work.cancel()

    async def aclose(self) -> None:
        """Stop the turn and wait until it has ended; no more events follow."""
        self._has_ended = True
        self._work.cancel()
        await self._work.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Mark a failure as retrieved: the reader of the events gets it, if there is one.

    Otherwise asyncio would log it.
    """
    if not task.cancelled():
        task.exception()
