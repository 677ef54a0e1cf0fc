"""The turn loop: prefill, generate, run the tools, generate again, until the model is done.

There is one loop for all frontends, so that all of them evict, hint and stop alike. It owns the
session while it runs: a backend never changes it, so a failed or cancelled generation leaves
nothing behind but the text that the user has seen. Prefilling is a step of its own, because only
the backend knows whether a prompt fits. The loop then makes room and asks again, before anything
was generated. Every call in the session has a result whenever the loop ends, because no API accepts
a history without one.
"""

import asyncio
from collections.abc import Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any

from shepherd.backends.base import Backend, Generation
from shepherd.errors import ContextFullError, InvalidRequestError, ShepherdError
from shepherd.events import (
    Event,
    EventCallback,
    Failure,
    FinishReason,
    Notice,
    PrefillProgress,
    Stats,
    Topic,
    UserPrompt,
)
from shepherd.messages import Message
from shepherd.session import Session, SessionAdditions
from shepherd.turn.calls import ABANDONED, RETRIED, CallRounds, HintGuard, hint
from shepherd.turn.fitting import (
    eviction_notice,
    has_room,
    make_room,
    room_for_answer,
)
from shepherd.turn.parts import (
    OutOfTokensError,
    ToolExecutor,
    TurnLimits,
    TurnOutcome,
    TurnStream,
)


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
    stats: list[Stats] = field(default_factory=list[Stats])
    calls: CallRounds = field(init=False)
    hints: HintGuard = field(init=False)

    def __post_init__(self) -> None:
        self.calls = CallRounds(
            self.session, self.backend, self.tools, self.stream, self.limits, self.client_tools
        )
        self.hints = HintGuard(self.limits.max_hints)

    async def run(self, prompt: Message) -> TurnOutcome:
        additions = self.session.additions
        for message in () if additions is None else await additions.before_prompt():
            self.session.add(message)
        self.session.add(prompt if additions is None else await additions.opening(prompt))
        if not self.stream.send(UserPrompt(prompt.plain_text)):
            return self._outcome(FinishReason.CANCELLED)
        return await self.rounds()

    async def guarded(self, work: Coroutine[Any, Any, TurnOutcome]) -> TurnOutcome:
        """Await the turn, and report its failure."""
        try:
            return await work
        except ShepherdError as error:
            self.stream.send(Failure(str(error), type(error).__name__))
            raise

    async def rounds(self) -> TurnOutcome:
        """Generate and run tools until the turn ends."""
        for _ in range(self.limits.max_rounds):
            generation = await self._next_generation()
            if generation is None:
                return self._outcome(FinishReason.LENGTH)
            if self.stream.cancelled:
                self.calls.fill(generation.message.tool_calls)
                return self._outcome(FinishReason.CANCELLED)
            if self.hints.needed(self.session, generation):
                ended = self._hint(generation)
            elif generation.message.tool_calls:
                ended = await self.calls.run(generation.message.tool_calls)
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
        backend, observer = self.backend, self.limits.observer
        while True:
            try:
                async with observer.prefilled(backend, self.session, self._read) as (prompt,):
                    tokens = prompt.prompt_tokens
                    if fits or self.stream.cancelled or has_room(backend, tokens):
                        limit = self._token_limit()
                        return await observer.generate(backend, prompt, self.stream.send, limit)
            except ContextFullError as full:
                if self.stream.partial_message() is not None or not self.limits.evicts:
                    raise
                await self._make_room(full, failures)
                failures, fits = failures + 1, False
                continue
            evicted = await room_for_answer(self.session, self.backend, tokens)
            fits = not self._report_evicted(evicted)

    def _read(self, event: Event) -> bool:
        """Forward an event of the prompt's reading; the ledger counts the tokens."""
        if isinstance(event, PrefillProgress):
            self.session.ledger.context_used = event.done
            self.session.ledger.context_size = self.backend.info.context_size
        return self.stream.send(event)

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
            self.stream.send(Notice(text, Topic.EVICTION))
        return bool(evicted)

    def _hint(self, generation: Generation) -> FinishReason | None:
        """Report the problem to user and model; the reason to end the turn, None to go on."""
        again = self.hints.take()
        text = (RETRIED if again else ABANDONED).format(problems=" ".join(generation.problems))
        if not self.stream.send(Notice(text, Topic.HINT)):
            return FinishReason.CANCELLED
        if not again:
            return generation.finish_reason
        self.session.add(hint(generation))
        return None

    async def _join_additions(
        self, additions: SessionAdditions, ended: FinishReason | None
    ) -> FinishReason | None:
        """Add the messages that wait; the reason to end the turn, None to go on."""
        messages = await additions.between_rounds(ending=ended is not None)
        if not messages and ended is not None:
            messages = await additions.at_end(self.session.messages[-1].content)
        for index, message in enumerate(messages):
            self.session.add(message)
            if additions.was_displayed(message):
                continue
            topic = Topic.HINT if message.is_hint else Topic.STEERING
            if not self.stream.send(Notice(message.plain_text, topic)):
                for rest in messages[index + 1 :]:
                    self.session.add(rest)
                return FinishReason.CANCELLED
        return None if messages else ended

    def _stop(self, text: str) -> TurnOutcome:
        self.stream.send(Failure(text, "TurnStopped"))
        return self._outcome(FinishReason.ERROR)

    def _outcome(self, reason: FinishReason) -> TurnOutcome:
        return TurnOutcome(reason, tuple(self.stats))
