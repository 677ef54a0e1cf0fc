"""The turn loop: prefill, generate, run the tools, generate again, until the model is done."""

import asyncio
from collections.abc import Collection, Coroutine
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from shepherd.backends.base import Backend, Generation, GenerationStats
from shepherd.errors import ContextFullError, InvalidRequestError, ShepherdError
from shepherd.events import CallbackEvent, EventCallback, FinishReason, Topic, tokens_read
from shepherd.messages import INTERRUPTED, Message, ToolCall
from shepherd.session import Session, SessionAdditions
from shepherd.tasks import end_tasks
from shepherd.tools.base import ToolResult
from shepherd.tools.deferred.wrapper import open_call
from shepherd.turn.fitting import (
    eviction_notice,
    fit_result,
    has_room,
    make_room,
    result_bytes,
    room_for_answer,
)
from shepherd.turn.parts import (
    OutOfTokensError,
    ToolExecutor,
    TurnLimits,
    TurnOutcome,
    TurnStream,
    batch_length,
)
from shepherd.turn.repetition import ABANDONED, RETRIED, HintGuard, RepetitionGuard, hint

NOT_REPEATED = "Error: not run again: this exact call was made {count} times in this turn"


async def run_turn(
    session: Session,
    prompt: str | Message,
    backend: Backend,
    tools: ToolExecutor,
    callback: EventCallback,
    limits: TurnLimits | None = None,
) -> TurnOutcome:
    """Answer `prompt`, a text or a message of the user, running tools until the model is done.

    Sends USER_PROMPT, each generation's events, one TOOL_RESULT per call, and notices. After a
    call that was not understood, the model tries again with a hint. If the callback returns False,
    the outcome is CANCELLED. If the task is cancelled, CancelledError is raised. In both cases the
    partial answer is kept, and every call in the session has a result. Raises ShepherdError after
    an ERROR event. A prompt that can't fit, or with refused images, is removed from the session.
    """
    turn = _Turn(session, backend, tools, TurnStream(callback), limits or TurnLimits())
    return await turn.guarded(turn.run(Message.user(prompt) if isinstance(prompt, str) else prompt))


async def continue_turn(
    session: Session,
    backend: Backend,
    tools: ToolExecutor,
    callback: EventCallback,
    limits: TurnLimits,
    client_tools: Collection[str] = (),
) -> TurnOutcome:
    """`run_turn` for a session that already ends with the prompt, or with results of calls.

    Calls of `client_tools` are not run and get no result: they end the turn as TOOL_CALLS, after
    the other calls of the same answer were run.
    """
    stream = TurnStream(callback, client_tools)
    turn = _Turn(session, backend, tools, stream, limits, client_tools)
    return await turn.guarded(turn.rounds())


@dataclass(slots=True)
class _Turn:
    session: Session
    backend: Backend
    tools: ToolExecutor
    stream: TurnStream
    limits: TurnLimits
    client_tools: Collection[str] = ()
    stats: list[GenerationStats] = field(default_factory=list[GenerationStats])
    names: dict[str, str] = field(default_factory=dict[str, str])
    guard: RepetitionGuard = field(init=False)
    hints: HintGuard = field(init=False)

    def __post_init__(self) -> None:
        self.guard = RepetitionGuard(self.limits.reminder_after, self.limits.stop_after)
        self.hints = HintGuard(self.limits.max_hints)

    async def run(self, prompt: Message) -> TurnOutcome:
        additions = self.session.additions
        self.session.add(prompt if additions is None else await additions.opening(prompt))
        if not self.stream.send(CallbackEvent.USER_PROMPT, prompt.plain_text):
            return self._outcome(FinishReason.CANCELLED)
        return await self.rounds()

    async def guarded(self, work: Coroutine[Any, Any, TurnOutcome]) -> TurnOutcome:
        """Await the turn, and report its failure."""
        try:
            return await work
        except ShepherdError as error:
            self.stream.send(CallbackEvent.ERROR, str(error), type(error).__name__)
            raise

    async def rounds(self) -> TurnOutcome:
        """Generate and run tools until the turn ends."""
        for _ in range(self.limits.max_rounds):
            generation = await self._next_generation()
            if generation is None:
                return self._outcome(FinishReason.LENGTH)
            if self.stream.cancelled:
                self._fill(generation.message.tool_calls, INTERRUPTED)
                return self._outcome(FinishReason.CANCELLED)
            if self.hints.needed(self.session, generation):
                ended = self._hint(generation)
            elif generation.message.tool_calls:
                ended = await self._run_tools(generation.message.tool_calls)
            else:
                ended = generation.finish_reason
            if self.session.additions is not None and ended in (None, FinishReason.STOP):
                ended = await self._join_additions(self.session.additions, ended)
            if ended is not None:
                return self._outcome(ended)
        return self._stop(f"Stopped after {self.limits.max_rounds} rounds of tool calls.")

    async def _next_generation(self) -> Generation | None:
        """The next generation, None if the limits of tokens leave no room for another one."""
        if self.limits.total_tokens and self._tokens_left() <= 0:
            return None
        try:
            return await self._generate()
        except ContextFullError:
            if self.limits.evicts or not self.stats:
                raise
            return None
        except OutOfTokensError:
            return None

    def _tokens_left(self) -> int:
        return self.limits.total_tokens - sum(stats.completion_tokens for stats in self.stats)

    def _token_limit(self) -> int:
        """The maximum of tokens of the next generation, 0 for as many as fit."""
        if not self.limits.total_tokens:
            return self.limits.max_tokens
        return min(self._tokens_left(), self.limits.max_tokens or self._tokens_left())

    async def _generate(self) -> Generation:
        self.stream.begin_generation()
        try:
            generation = await self._generate_evicting()
        except InvalidRequestError:
            if not self.stats and self.session.messages[-1].images:
                self.session.pop_last()
            raise
        except asyncio.CancelledError:
            partial = self.stream.partial_message()
            if partial is not None:
                self.session.add(partial)
            raise
        message = generation.message
        if message.content or message.reasoning or message.tool_calls:
            self.session.add(message)
        self.stats.append(generation.stats)
        ledger = self.session.ledger
        ledger.context_used = generation.stats.context_used
        ledger.context_size = generation.stats.context_size
        return generation

    async def _generate_evicting(self) -> Generation:
        """Generate as soon as the prompt fits.

        Each round generates, shortens the conversation, or finds that nothing more can be evicted.
        """
        failures, fits = 0, not self.limits.evicts
        while True:
            try:
                async with await self.backend.prefill_session(
                    self.session, self._read
                ) as prefilled:
                    tokens = prefilled.prompt_tokens
                    if fits or self.stream.cancelled or has_room(self.backend, tokens):
                        return await self.backend.generate_from_prefilled(
                            prefilled, self.stream.send, self._token_limit()
                        )
            except ContextFullError as full:
                if self.stream.partial_message() is not None or not self.limits.evicts:
                    raise
                await self._make_room(full, failures)
                failures, fits = failures + 1, False
                continue
            evicted = await room_for_answer(self.session, self.backend, tokens)
            fits = not self._report_evicted(evicted)

    def _read(self, event: CallbackEvent, content: str, name: str, id: str) -> bool:
        """Forward an event of the prompt's reading; the ledger counts the tokens."""
        if event is CallbackEvent.SYSTEM and name == Topic.PREFILL:
            self.session.ledger.context_used = tokens_read(content)
            self.session.ledger.context_size = self.backend.info.context_size
        return self.stream.send(event, content, name, id)

    async def _make_room(self, full: ContextFullError, failures: int) -> None:
        try:
            evicted = await make_room(self.session, self.backend, full, failures)
        except ContextFullError:
            if not self.stats:
                self.session.pop_last()
            raise
        self._report_evicted(evicted)

    def _report_evicted(self, evicted: list[Message]) -> bool:
        """Notify the user of evicted messages; False if there are none."""
        if evicted:
            text = eviction_notice(self.session, len(evicted))
            self.stream.send(CallbackEvent.SYSTEM, text, Topic.EVICTION)
        return bool(evicted)

    def _hint(self, generation: Generation) -> FinishReason | None:
        """Report the problem to user and model; the reason to end the turn, None to go on."""
        again = self.hints.take()
        text = (RETRIED if again else ABANDONED).format(problems=" ".join(generation.problems))
        if not self.stream.send(CallbackEvent.SYSTEM, text, Topic.HINT):
            return FinishReason.CANCELLED
        if not again:
            return generation.finish_reason
        self.session.add(hint(generation))
        return None

    async def _run_tools(self, calls: tuple[ToolCall, ...]) -> FinishReason | None:
        """Give each call its result, except those of the client's tools.

        Returns the reason to end the turn, None to go on.
        """
        own = [call for call in calls if call.name not in self.client_tools]
        self.names = {call.id: call.name for call in own}
        ended = await self._run_own_tools(tuple(open_call(c, self.client_tools) for c in own))
        return FinishReason.TOOL_CALLS if ended is None and len(own) < len(calls) else ended

    async def _run_own_tools(self, calls: tuple[ToolCall, ...]) -> FinishReason | None:
        parallel = {tool.name for tool in self.session.tools if tool.parallel}
        done = 0
        while done < len(calls):
            count = batch_length(calls[done:], parallel)
            batch = calls[done : done + count]
            allowed = tuple(takewhile(lambda call: not self.guard.exhausted(call), batch))
            ended = await self._run_batch(allowed, calls[done + len(allowed) :])
            if ended is not None:
                return ended
            done += len(allowed)
            if len(allowed) < count:
                return self._stop_repeating(calls[done:])
        return None

    def _stop_repeating(self, calls: tuple[ToolCall, ...]) -> FinishReason:
        """End the turn because the first of `calls` was made too often."""
        self._fill(calls, NOT_REPEATED.format(count=self.limits.stop_after), send=True)
        text = f"Stopped: the model made the same call of {calls[0].name} "
        return self._stop(f"{text}{self.limits.stop_after} times.").finish_reason

    async def _run_batch(
        self, calls: tuple[ToolCall, ...], later: tuple[ToolCall, ...]
    ) -> FinishReason | None:
        """Run calls at the same time, and add their results in order.

        At an early end, the rest of `calls` and the `later` ones get a result too.
        """
        pending = [*calls, *later]
        running: list[asyncio.Task[ToolResult]] = []
        try:
            room = await result_bytes(self.session, self.backend)
            running = [asyncio.ensure_future(self._run_call(call, room)) for call in calls]
            for call, task in zip(calls, running, strict=True):
                message = await self._message(call, await task)
                self._add_result(message)
                del pending[0]
                if not self._send_result(message):
                    self._fill(tuple(pending), INTERRUPTED)
                    return FinishReason.CANCELLED
        except (asyncio.CancelledError, ShepherdError):
            self._fill(tuple(pending), INTERRUPTED)
            raise
        finally:
            await end_tasks(*running)
        return None

    async def _run_call(self, call: ToolCall, room: int | None) -> ToolResult:
        """The result of a call, whose events carry its id."""

        def send(event: CallbackEvent, content: str, name: str, id: str) -> bool:
            return self.stream.send(event, content, name, id or call.id)

        return await self.tools.run(call, room, send)

    async def _message(self, call: ToolCall, result: ToolResult) -> Message:
        text = self.guard.annotate(call, result.content)
        message = replace(Message.tool(call, text), images=result.images)
        if not self.backend.info.vision:  # a line for each image remains
            message = message.without_images()
        return await fit_result(self.session, self.backend, message)

    async def _join_additions(
        self, additions: SessionAdditions, ended: FinishReason | None
    ) -> FinishReason | None:
        """Add the messages that wait; the reason to end the turn, None to go on."""
        messages = await additions.between_rounds(ending=ended is not None)
        if not messages and ended is not None:
            messages = await additions.at_end(self.session.messages[-1].content)
        for index, message in enumerate(messages):
            self.session.add(message)
            topic = Topic.HINT if message.is_hint else Topic.STEERING
            if not self.stream.send(CallbackEvent.SYSTEM, message.plain_text, topic):
                for rest in messages[index + 1 :]:
                    self.session.add(rest)
                return FinishReason.CANCELLED
        return None if messages else ended

    def _add_result(self, message: Message) -> None:
        """Add a result under the name that the model wrote, which may be `use_tool`."""
        name = self.names.get(message.tool_call_id, message.name)
        self.session.add(replace(message, name=name))

    def _send_result(self, message: Message) -> bool:
        return self.stream.send(
            CallbackEvent.TOOL_RESULT, message.content, message.name, message.tool_call_id
        )

    def _fill(self, calls: tuple[ToolCall, ...], text: str, *, send: bool = False) -> None:
        for message in (Message.tool(call, text) for call in calls):
            self._add_result(message)
            if send:
                self._send_result(message)

    def _stop(self, text: str) -> TurnOutcome:
        self.stream.send(CallbackEvent.ERROR, text, "TurnStopped")
        return self._outcome(FinishReason.ERROR)

    def _outcome(self, reason: FinishReason) -> TurnOutcome:
        return TurnOutcome(reason, tuple(self.stats))
