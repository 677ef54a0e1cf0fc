"""The turn loop: prefill, generate, run the tools, generate again, until the model is done."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from shepherd.backends.base import Backend, Generation, GenerationStats
from shepherd.errors import ContextFullError, InvalidRequestError, ShepherdError
from shepherd.events import CallbackEvent, EventCallback, FinishReason, Topic, ignore_events
from shepherd.messages import INTERRUPTED, Message, ToolCall
from shepherd.session import Session
from shepherd.tools.base import ToolResult
from shepherd.turn.fitting import (
    eviction_notice,
    fit_result,
    has_room,
    make_room,
    result_bytes,
    room_for_answer,
)
from shepherd.turn.repetition import ABANDONED, RETRIED, HintGuard, RepetitionGuard, hint

NOT_REPEATED = "Error: not run again: this exact call was made {count} times in this turn"


class ToolExecutor(Protocol):
    """Runs calls; for a failed or refused call, it returns a result and does not raise."""

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        """The call's result; `output_bytes` caps its text below the executor's own limit.

        `on_event` receives SYSTEM notices, and STATS of other models that the call used.
        """
        ...


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """The guards of one turn; `max_tokens` per generation, 0 means as many as fit.

    `max_hints` limits the hints to the model about calls that were not understood.
    """

    max_tokens: int = 0
    max_rounds: int = 50
    reminder_after: int = 3
    stop_after: int = 5
    max_hints: int = 2


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The end of a turn; `stats` has one entry per generation."""

    finish_reason: FinishReason
    stats: tuple[GenerationStats, ...] = ()


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
    limits = limits or TurnLimits()
    turn = _Turn(session, backend, tools, TurnStream(callback), limits)
    try:
        return await turn.run(Message.user(prompt) if isinstance(prompt, str) else prompt)
    except ShepherdError as error:
        turn.stream.send(CallbackEvent.ERROR, str(error), type(error).__name__)
        raise


@dataclass(slots=True)
class TurnStream:
    """Forwards events, keeps their text, and remembers a cancellation."""

    callback: EventCallback
    cancelled: bool = False
    _content: list[str] = field(default_factory=list[str])
    _reasoning: list[str] = field(default_factory=list[str])

    def send(self, event: CallbackEvent, content: str, name: str = "", id: str = "") -> bool:
        """Forward an event; False, and nothing is forwarded, after the callback returned False."""
        if self.cancelled:
            return False
        if event is CallbackEvent.THINKING:
            self._reasoning.append(content)
        elif event in (CallbackEvent.CONTENT, CallbackEvent.CODEBLOCK):
            self._content.append(content)
        self.cancelled = not self.callback(event, content, name, id)
        return not self.cancelled

    def begin_generation(self) -> None:
        """Discard the text of the previous generation."""
        self._content.clear()
        self._reasoning.clear()

    def partial_message(self) -> Message | None:
        """The message so far, None if nothing was generated."""
        content, reasoning = "".join(self._content), "".join(self._reasoning)
        return Message.assistant(content, reasoning) if content or reasoning else None


@dataclass(slots=True)
class _Turn:
    session: Session
    backend: Backend
    tools: ToolExecutor
    stream: TurnStream
    limits: TurnLimits
    stats: list[GenerationStats] = field(default_factory=list[GenerationStats])
    guard: RepetitionGuard = field(init=False)
    hints: HintGuard = field(init=False)

    def __post_init__(self) -> None:
        self.guard = RepetitionGuard(self.limits.reminder_after, self.limits.stop_after)
        self.hints = HintGuard(self.limits.max_hints)

    async def run(self, prompt: Message) -> TurnOutcome:
        self.session.add(prompt)
        if not self.stream.send(CallbackEvent.USER_PROMPT, prompt.plain_text):
            return self._outcome(FinishReason.CANCELLED)
        for _ in range(self.limits.max_rounds):
            generation = await self._generate()
            if self.stream.cancelled:
                self._fill(generation.message.tool_calls, INTERRUPTED)
                return self._outcome(FinishReason.CANCELLED)
            if self.hints.needed(self.session, generation):
                ended = self._hint(generation)
            elif generation.message.tool_calls:
                ended = await self._run_tools(generation.message.tool_calls)
            else:
                ended = generation.finish_reason
            if ended is not None:
                return self._outcome(ended)
        return self._stop(f"Stopped after {self.limits.max_rounds} rounds of tool calls.")

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
        failures, fits = 0, False
        while True:
            try:
                async with await self.backend.prefill_session(
                    self.session, self.stream.send
                ) as prefilled:
                    tokens = prefilled.prompt_tokens
                    if fits or self.stream.cancelled or has_room(self.backend, tokens):
                        return await self.backend.generate_from_prefilled(
                            prefilled, self.stream.send, self.limits.max_tokens
                        )
            except ContextFullError as full:
                if self.stream.partial_message() is not None:
                    raise
                await self._make_room(full, failures)
                failures, fits = failures + 1, False
                continue
            evicted = await room_for_answer(self.session, self.backend, tokens)
            fits = not self._report_evicted(evicted)

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
        """Give each call its result; the reason to end the turn, None to go on."""
        for index, call in enumerate(calls):
            if self.guard.exhausted(call):
                text = NOT_REPEATED.format(count=self.limits.stop_after)
                self._fill(calls[index:], text, send=True)
                return self._stop(
                    f"Stopped: the model made the same call of {call.name} "
                    f"{self.limits.stop_after} times."
                ).finish_reason
            try:
                message = await self._result(call)
            except (asyncio.CancelledError, ShepherdError):
                self._fill(calls[index:], INTERRUPTED)
                raise
            self.session.add(message)
            if not self.stream.send(CallbackEvent.TOOL_RESULT, message.content, call.name, call.id):
                self._fill(calls[index + 1 :], INTERRUPTED)
                return FinishReason.CANCELLED
        return None

    async def _result(self, call: ToolCall) -> Message:
        room = await result_bytes(self.session, self.backend)
        result = await self.tools.run(call, room, self.stream.send)
        text = self.guard.annotate(call, result.content)
        return await fit_result(self.session, self.backend, Message.tool(call, text))

    def _fill(self, calls: tuple[ToolCall, ...], text: str, *, send: bool = False) -> None:
        for call in calls:
            self.session.add(Message.tool(call, text))
            if send:
                self.stream.send(CallbackEvent.TOOL_RESULT, text, call.name, call.id)

    def _stop(self, text: str) -> TurnOutcome:
        self.stream.send(CallbackEvent.ERROR, text, "TurnStopped")
        return self._outcome(FinishReason.ERROR)

    def _outcome(self, reason: FinishReason) -> TurnOutcome:
        return TurnOutcome(reason, tuple(self.stats))
