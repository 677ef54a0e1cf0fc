"""One turn of a conversation as an iterator of its events, and the answer that they make."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias

from shepherd import events
from shepherd.events import (
    EventCallback,
    Failure,
    FinishReason,
    Notice,
    PlanUpdate,
    PrefillProgress,
    Stats,
    Stop,
    Text,
    Thinking,
    ToolResult,
    UserPrompt,
)
from shepherd.messages import ToolCall
from shepherd.turn import TurnOutcome


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a turn: the text and the reasoning after the last result of a tool.

    `problem` says why the turn was stopped, "" if it was not.
    """

    text: str
    thinking: str = ""
    reason: FinishReason = FinishReason.STOP
    tool_calls: tuple[ToolCall, ...] = ()
    stats: tuple[Stats, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class End:
    """The last event of a turn."""

    answer: Answer


Event: TypeAlias = Text | Thinking | ToolCall | ToolResult | Notice | Stats | End
"""One of a turn's events; a `CodeBlock` is a `Text`.

Progress and plans are notices here. What a turn's end or an exception contains is left out.
"""


@dataclass(slots=True)
class AnswerBuilder:
    """Collects an answer from the events of a turn."""

    _text: list[str] = field(default_factory=list[str])
    _thinking: list[str] = field(default_factory=list[str])
    _calls: list[ToolCall] = field(default_factory=list[ToolCall])
    _stats: list[Stats] = field(default_factory=list[Stats])
    problem: str = ""

    def add(self, event: Event) -> None:
        """Add one event."""
        match event:
            case Text():
                self._text.append(event.text)
            case Thinking():
                self._thinking.append(event.text)
            case ToolCall():
                self._calls.append(event)
            case ToolResult():
                self._text.clear()
                self._thinking.clear()
            case Stats():
                self._stats.append(event)
            case Notice() | End():
                pass

    def answer(self, reason: FinishReason) -> Answer:
        """The collected answer."""
        text, thinking = "".join(self._text), "".join(self._thinking)
        calls, stats = tuple(self._calls), tuple(self._stats)
        return Answer(text, thinking, reason, calls, stats, self.problem)


RunTurn: TypeAlias = Callable[[EventCallback], Coroutine[Any, Any, TurnOutcome]]


class TurnWork:
    """The task behind a turn, and the events that wait to be read."""

    def __init__(self, run: RunTurn) -> None:
        self._run_turn = run
        self._builder = AnswerBuilder()
        self._task: asyncio.Task[None] | None = None
        self.cancelled = False
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()

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
        self._builder.add(event)
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
        reason = FinishReason.CANCELLED
        try:
            if not self.cancelled:
                reason = (await self._run_turn(self._receive)).finish_reason
            self.emit(End(self._builder.answer(reason)))
        except asyncio.CancelledError:
            if not self.cancelled:
                raise
            self.emit(End(self._builder.answer(FinishReason.CANCELLED)))
        finally:
            self.events.put_nowait(None)

    def _receive(self, event: events.Event) -> bool:
        match event:
            case Failure():
                self._builder.problem = event.message
            case PrefillProgress() | PlanUpdate():
                self.emit(event.notice)
            case UserPrompt() | Stop():
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
        self._ended = False
        weakref.finalize(self, work.abandon).atexit = False

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        try:
            if self._begin is not None:
                begin, self._begin = self._begin, None
                await begin(self._work)
            event = await self._work.events.get()
        except BaseException:
            await self.aclose()
            raise
        if event is None:
            self._ended = True
            self._work.raise_failure()
            raise StopAsyncIteration
        return event

    def cancel(self) -> None:
        """Stop the turn; its last event is then an `End` with the reason `cancelled`."""
        self._work.cancel()

    async def aclose(self) -> None:
        """Stop the turn and wait until it has ended; no more events follow."""
        self._ended = True
        self._work.cancel()
        await self._work.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Mark a failure as retrieved: the reader of the events gets it, if there is one."""
    if not task.cancelled():
        task.exception()
