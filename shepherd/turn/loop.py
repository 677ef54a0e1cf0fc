"""The turn loop: prefill, generate, run the tools, generate again, until the model is done.

There is one loop for all frontends, so that all of them evict, hint and stop alike. It owns the
session while it runs: a backend never changes it, so a failed or cancelled generation leaves
nothing behind but the text that the user has seen. Prefilling is a step of its own, because only
the backend knows whether a prompt fits. The loop then makes room and asks again, before anything
was generated. Every call in the session has a result whenever the loop ends, because no API accepts
a history without one.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from shepherd import errors, events
from shepherd.backends.base import Backend, Generation
from shepherd.messages import Message
from shepherd.session import Session, SessionAdditions
from shepherd.turn.calls import CallRounds
from shepherd.turn.fitting import eviction_notice, has_room, make_room, room_for_answer
from shepherd.turn.parts import OutOfTokensError, ToolExecutor, TurnLimits, TurnOutcome, TurnStream

HINT = (
    "[No tool was run. {problems} Write the whole call again in the right form, "
    "or answer in plain words if no call was meant.]"
)
RETRIED = "A tool call could not be understood, so the model tries again: {problems}"
SAVE_SECONDS = 1.0
ABANDONED = "A tool call could not be understood and was not run: {problems}"


async def run_turn(
    session: Session,
    prompt: str | Message,
    backend: Backend,
    tools: ToolExecutor,
    callback: events.EventCallback,
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
    return await turn.run(Message.user(prompt) if isinstance(prompt, str) else prompt)


async def continue_turn(
    session: Session,
    backend: Backend,
    tools: ToolExecutor,
    callback: events.EventCallback,
    limits: TurnLimits,
    client_tools: Collection[str] = (),
) -> TurnOutcome:
    """`run_turn` for a session that already ends with the prompt, or with results of calls.

    Calls of `client_tools` are not run and get no result: they end the turn as TOOL_CALLS, after
    the other calls of the same answer were run.
    """
    turn = _Turn(session, backend, tools, TurnStream(callback, client_tools), limits)
    return await turn.run(prompt=None)


@dataclass(slots=True)
class _Turn:
    """One turn; `stats` has an entry for each generation that has ended."""

    session: Session
    backend: Backend
    tools: ToolExecutor
    stream: TurnStream
    limits: TurnLimits
    stats: list[events.Stats] = field(default_factory=list[events.Stats])
    calls: CallRounds = field(init=False)
    hints: int = 0  # that were needed, about calls that were not understood

    def __post_init__(self) -> None:
        self.calls = CallRounds(self.session, self.backend, self.tools, self.stream, self.limits)

    async def run(self, prompt: Message | None) -> TurnOutcome:
        """The whole turn, whose failure is reported; None if the session has the prompt already."""
        try:
            if prompt is not None and not await self._begin(prompt):
                return self._outcome(events.FinishReason.CANCELLED)
            return await self._rounds()
        except errors.ShepherdError as error:
            self.stream.send(events.Failure(str(error), type(error).__name__))
            raise

    async def _begin(self, prompt: Message) -> bool:
        """Add the prompt and what goes with it; False if the callback cancels."""
        opening = prompt
        if self.session.additions is not None:
            for message in await self.session.additions.before_prompt():
                self.session.add(message)
            opening = await self.session.additions.opening(prompt)
        self.session.add(opening)
        # users see what they wrote, without what was added to it
        return self.stream.send(events.UserPrompt(prompt.plain_text))

    async def _rounds(self) -> TurnOutcome:
        """Generate and run tools until the turn ends."""
        for _ in range(self.limits.max_rounds):
            generation = await self._next_generation()
            if generation is None:  # no tokens are left, as for an answer that reached its limit
                return self._outcome(events.FinishReason.LENGTH)
            if self.stream.cancelled:
                self.calls.fill(generation.message.tool_calls)
                return self._outcome(events.FinishReason.CANCELLED)
            if self._needs_hint(generation):
                end_reason = self._hint(generation)
            elif generation.message.tool_calls:
                end_reason = await self.calls.run(generation.message.tool_calls)
            else:
                end_reason = generation.finish_reason
            # messages would continue a turn; one that was cut, stopped or cancelled must end
            if self.session.additions is not None and end_reason in (
                None,
                events.FinishReason.STOP,
            ):
                end_reason = await self._join_additions(self.session.additions, end_reason)
            if end_reason is not None:
                return self._outcome(end_reason)
        text = f"Stopped after {self.limits.max_rounds} rounds of tool calls."
        self.stream.send(events.Failure(text, "TurnStopped"))
        return self._outcome(events.FinishReason.ERROR)

    async def _next_generation(self) -> Generation | None:
        """The next generation, None if the limits of tokens leave no room for another one."""
        if self.limits.total_tokens and self._tokens_left() <= 0:
            return None
        try:
            return await self._generate()
        except errors.ContextFullError:
            # without eviction, rounds that have ended stand as the answer; a first one has failed
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
        left = self._tokens_left()
        # 0 is no limit
        return min(left, self.limits.max_tokens or left)

    async def _generate(self) -> Generation:
        """Generate, and add the message to the session; a part of it if the task is cancelled."""
        self.stream.begin_generation()
        saving = asyncio.ensure_future(self._save_meanwhile())
        try:
            generation = await self._generate_evicting()
        except errors.InvalidRequestError:
            # refused images would make each later request fail too
            if not self.stats and self.session.messages[-1].images:
                self.session.pop_last()
            raise
        except asyncio.CancelledError:
            partial = self.stream.partial_message()
            if partial is not None:
                self.session.add(partial)
            raise
        finally:
            saving.cancel()
        message = generation.message
        # a generation that was stopped at once has nothing to add
        if message.content or message.reasoning or message.tool_calls:
            self.session.add(message)
        self.stats.append(generation.stats)
        ledger = self.session.ledger
        ledger.context_used = generation.stats.context_used
        ledger.context_size = generation.stats.context_size
        return generation

    async def _save_meanwhile(self) -> None:
        """Let the journal have the answer so far each second: the program may be killed."""
        journal = self.session.journal
        while journal is not None:
            await asyncio.sleep(SAVE_SECONDS)
            partial = self.stream.partial_message()
            if partial is not None:
                journal.answer_grown(partial)

    async def _generate_evicting(self) -> Generation:
        """Generate as soon as the prompt fits.

        Each round generates, shortens the conversation, or finds that nothing more can be evicted.
        """
        # `accepts_size`: the prompt is taken as it is, even if it leaves little room for an answer
        failures, accepts_size = 0, not self.limits.evicts
        backend, observer = self.backend, self.limits.observer
        while True:
            try:
                async with observer.prefilled(backend, self.session, self._note_read) as (prompt,):
                    tokens = prompt.prompt_tokens
                    if accepts_size or self.stream.cancelled or has_room(backend, tokens):
                        limit = self._token_limit()
                        return await observer.generate(backend, prompt, self.stream.send, limit)
            except errors.ContextFullError as full:
                # the user has seen a part of the answer, which another attempt would repeat
                if self.stream.partial_message() is not None or not self.limits.evicts:
                    raise
                await self._make_room(full, failures)
                failures, accepts_size = failures + 1, False
                continue
            evicted = await room_for_answer(self.session, self.backend, tokens)
            accepts_size = not self._report_evicted(evicted)

    def _note_read(self, event: events.Event) -> bool:
        """Forward an event of the prompt's reading; the ledger counts the tokens."""
        if isinstance(event, events.PrefillProgress) and not event.place:
            self.session.ledger.context_used = event.done
            self.session.ledger.context_size = self.backend.info.context_size
        return self.stream.send(event)

    async def _make_room(self, full: errors.ContextFullError, failures: int) -> None:
        """Evict old messages; raises ContextFullError if that can't make the prompt fit."""
        try:
            evicted = await make_room(self.session, self.backend, full, failures)
        except errors.ContextFullError:
            if not self.stats:  # the prompt itself is too long: the next one must not fail too
                self.session.pop_last()
            raise
        self._report_evicted(evicted)

    def _report_evicted(self, evicted: list[Message]) -> bool:
        """Notify the user of evicted messages; False if there are none."""
        if evicted:
            text = eviction_notice(self.session, len(evicted))
            self.stream.send(events.Notice(text, events.Topic.EVICTION))
        return bool(evicted)

    def _needs_hint(self, generation: Generation) -> bool:
        """Whether it tried to call a tool, but has no valid call."""
        ended_well = generation.finish_reason is events.FinishReason.STOP
        tried = bool(self.session.tools and generation.problems)
        return tried and ended_well and not generation.message.tool_calls

    def _hint(self, generation: Generation) -> events.FinishReason | None:
        """Report the problem to user and model; the reason to end the turn, None to go on."""
        tries_again = self.hints < self.limits.max_hints
        self.hints += 1
        problems = " ".join(generation.problems)
        text = (RETRIED if tries_again else ABANDONED).format(problems=problems)
        if not self.stream.send(events.Notice(text, events.Topic.HINT)):
            return events.FinishReason.CANCELLED
        if not tries_again:
            return generation.finish_reason
        self.session.add(Message.hint(HINT.format(problems=problems)))
        return None

    async def _join_additions(
        self, additions: SessionAdditions, end_reason: events.FinishReason | None
    ) -> events.FinishReason | None:
        """Add the messages that wait; the reason to end the turn, None to go on."""
        messages = await additions.between_rounds(ending=end_reason is not None)
        if not messages and end_reason is not None:
            messages = await additions.at_end(self.session.messages[-1].content)
        for message in messages:  # all, as none of them may be lost by a cancellation
            self.session.add(message)
        for message in messages:
            if additions.was_displayed(message):
                continue
            topic = events.Topic.HINT if message.is_hint else events.Topic.STEERING
            if not self.stream.send(events.Notice(message.plain_text, topic)):
                return events.FinishReason.CANCELLED
        return None if messages else end_reason

    def _outcome(self, reason: events.FinishReason) -> TurnOutcome:
        return TurnOutcome(reason, tuple(self.stats))
