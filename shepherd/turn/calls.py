"""Runs the calls of an answer, and gives each of them one result."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import takewhile

from msgspec.structs import replace

from shepherd.backends.base import Backend
from shepherd.errors import ShepherdError
from shepherd.events import Event, Failure, FinishReason, Notice, PlanUpdate, Stats, Topic
from shepherd.events import ToolResult as ToolResultEvent
from shepherd.messages import INTERRUPTED, Message, ToolCall
from shepherd.session import Session
from shepherd.tasks import end_tasks
from shepherd.tools.deferred import open_call
from shepherd.tools.tool import ToolResult
from shepherd.turn.fitting import fit_result, result_bytes
from shepherd.turn.parts import ToolExecutor, TurnLimits, TurnStream

REMINDER = (
    "[This exact call was made {count} times; its result does not change. "
    "Answer with what you know or try something else.]"
)
POLL_FACTOR = 4
"""Equal calls of tools that poll may come so many times as often."""


@dataclass(slots=True)
class RepetitionGuard:
    """Counts equal calls within one turn; a new result of another call resets the count.

    `polls` names the tools whose equal calls are usual.
    """

    reminder_after: int
    stop_after: int
    polls: Collection[str] = ()
    _counts: Counter[str] = field(default_factory=Counter[str])
    _results: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def allows(self, call: ToolCall) -> bool:
        """Count `call`; False if it has now been made too often to run."""
        key = _key(call)
        self._counts[key] += 1
        return self._counts[key] < self.limit(call)

    def limit(self, call: ToolCall) -> int:
        """The number of equal calls that ends the turn."""
        return self.stop_after * self._factor(call)

    def annotate(self, call: ToolCall, result: str) -> str:
        """The result, with a reminder once the call has been made `reminder_after` times."""
        key = _key(call)
        if (key, result) not in self._results:
            # the model has learned something: equal calls from before may be useful again
            self._results.add((key, result))
            self._counts = Counter({key: self._counts[key]})
        count = self._counts[key]
        if count < self.reminder_after * self._factor(call):
            return result
        return f"{result}\n{REMINDER.format(count=count)}"

    def _factor(self, call: ToolCall) -> int:
        return POLL_FACTOR if call.name in self.polls else 1


def _key(call: ToolCall) -> str:
    return f"{call.name} {call.arguments_json}"


STOPPED_AFTER = "{output}\n[interrupted by the user]"
NOT_REPEATED = "Error: not run again: this exact call was made {count} times in this turn"
STOPPED = "Stopped: the model made the same call of {name} {count} times."
WHOLE_SHARES = 2
"""So many results of calls that run together may have the usual size; more of them share it."""


@dataclass(slots=True)
class CallRounds:
    """The calls of one turn; those of the stream's `client_tools` are left to the client."""

    session: Session
    backend: Backend
    tools: ToolExecutor
    stream: TurnStream
    limits: TurnLimits
    # by the ids of calls: the names as the model wrote them, and what running commands have printed
    names: dict[str, str] = field(default_factory=dict[str, str])
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    guard: RepetitionGuard = field(init=False)

    def __post_init__(self) -> None:
        self.guard = RepetitionGuard(self.limits.reminder_after, self.limits.stop_after)

    async def run(self, calls: tuple[ToolCall, ...]) -> FinishReason | None:
        """Give each call its result, except those of the client's tools.

        Returns the reason to end the turn, None to go on.
        """
        client_tools = self.stream.client_tools
        own = [call for call in calls if call.name not in client_tools]
        self.names = {call.id: call.name for call in own}
        end_reason = await self._run_own_tools(tuple(open_call(c, client_tools) for c in own))
        if end_reason is None and len(own) < len(calls):
            return FinishReason.TOOL_CALLS  # the client runs its own calls now
        return end_reason

    async def _run_own_tools(self, calls: tuple[ToolCall, ...]) -> FinishReason | None:
        """Run the calls in order; calls of parallel tools that follow each other run together."""
        parallel = {tool.name for tool in self.session.tools if tool.parallel}
        self.guard.polls = {tool.name for tool in self.session.tools if tool.polls}
        done = 0
        while done < len(calls):
            neighbours = takewhile(lambda call: call.name in parallel, calls[done:])
            batch = tuple(neighbours) or calls[done : done + 1]  # any other call runs alone
            allowed = tuple(takewhile(self.guard.allows, batch))
            end_reason = await self._run_batch(allowed, calls[done + len(allowed) :])
            if end_reason is not None:
                return end_reason
            done += len(allowed)
            if len(allowed) < len(batch):
                return self._stop_repeating(calls[done:])
        return None

    def _stop_repeating(self, calls: tuple[ToolCall, ...]) -> FinishReason:
        """End the turn because the first of `calls` was made too often."""
        self.fill(calls, NOT_REPEATED.format(count=self.guard.limit(calls[0])), send=True)
        text = STOPPED.format(name=calls[0].name, count=self.guard.limit(calls[0]))
        self.stream.send(Failure(text, "TurnStopped"))
        return FinishReason.ERROR

    async def _run_batch(
        self, calls: tuple[ToolCall, ...], later: tuple[ToolCall, ...]
    ) -> FinishReason | None:
        """Run calls at the same time, and add their results in order.

        At an early end, the rest of `calls` and the `later` ones get a result too.
        """
        without_result = [*calls, *later]
        running: list[asyncio.Task[ToolResult]] = []
        try:
            max_bytes = await result_bytes(self.session, self.backend)
            # the results of many calls together must not fill the context
            if max_bytes is not None and len(calls) > WHOLE_SHARES:
                max_bytes = max_bytes * WHOLE_SHARES // len(calls)
            running = [asyncio.ensure_future(self._run_call(call, max_bytes)) for call in calls]
            for call, task in zip(calls, running, strict=True):
                message = await self._message(call, await task)
                self._add_result(message)
                del without_result[0]
                if not self._send_result(message):
                    self.fill(tuple(without_result))
                    return FinishReason.CANCELLED
        except (asyncio.CancelledError, ShepherdError):
            try:
                await end_tasks(*running)  # they send what they have printed
            finally:  # also if the wait is cancelled
                self.fill(tuple(without_result))
            raise
        finally:
            await end_tasks(*(task for task in running if not task.done()))
        return None

    async def _run_call(self, call: ToolCall, max_bytes: int | None) -> ToolResult:
        """The result of a call, whose events carry its id."""
        self.outputs.pop(call.id, None)  # of an earlier one, where a model repeats ids

        def send(event: Event) -> bool:
            if isinstance(event, Notice | PlanUpdate | Stats) and not event.id:
                event = replace(event, id=call.id)
            if isinstance(event, Notice) and event.topic is Topic.OUTPUT:
                self.outputs[call.id] = event.text
            return self.stream.send(event)

        return await self.tools.run(call, max_bytes, send)

    async def _message(self, call: ToolCall, result: ToolResult) -> Message:
        """The result as the model reads it: with a reminder, and cut to what its context holds."""
        text = self.guard.annotate(call, result.content)
        message = replace(Message.tool(call, text), images=result.images)
        if not self.backend.info.vision:
            message = message.without_images()  # a line for each image remains
        return await fit_result(self.session, self.backend, message)

    def _add_result(self, message: Message) -> None:
        """Add a result under the name that the model wrote, which may be `use_tool`."""
        name = self.names.get(message.tool_call_id, message.name)
        self.session.add(replace(message, name=name))

    def _send_result(self, message: Message) -> bool:
        return self.stream.send(
            ToolResultEvent(message.tool_call_id, message.name, message.content)
        )

    def fill(
        self, calls: tuple[ToolCall, ...], text: str = INTERRUPTED, *, send: bool = False
    ) -> None:
        """Give calls that did not end a result; `send` also sends it to the frontend."""
        for call in calls:
            output = self.outputs.get(call.id)
            message = Message.tool(call, STOPPED_AFTER.format(output=output) if output else text)
            self._add_result(message)
            if send:
                self._send_result(message)
