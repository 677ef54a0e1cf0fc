"""One answer of the agent: a whole turn in place of one generation."""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.config.choices import ShowToolCalls
from shepherd.errors import ContextFullError
from shepherd.events import Event, EventCallback, Failure, FinishReason, Stats
from shepherd.messages import Message, ToolSpec
from shepherd.server.agent.round import ReportedTools, RoundLimit, TurnBackend, TurnPrompt, total
from shepherd.server.agent.rounds import HiddenRounds
from shepherd.server.agent.task_rounds import TaskRounds
from shepherd.server.agent.tasks import TaskLimits, running, tasks_of_turn
from shepherd.server.agent.text import AnswerText
from shepherd.session import Session
from shepherd.turn import ToolExecutor, TurnLimits, TurnOutcome, continue_turn

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnParts:
    """What all turns of the agent share; `max_tasks` sub-agents of a turn work at once."""

    tools: ToolExecutor
    limits: TurnLimits
    show: ShowToolCalls
    rounds: HiddenRounds
    offer: Callable[[ModelInfo], Sequence[ToolSpec]]
    max_tasks: int = 1


@dataclass(slots=True)
class AgentTurn:
    """A `GenerationSource` that answers `session` with a whole turn.

    `history` are the messages as the client sent them, and `owner` is the client. Calls of
    `client_tools` are the answer's. With `on_evicted`, messages may leave a full context while the
    turn runs, and it gets them. `round_limit` limits the rounds after the first. `task_rounds`
    measures the rounds of sub-agents, before which `give_back` releases the tokens that the rounds
    so far have not used.
    """

    parts: TurnParts
    backend: Backend
    session: Session
    history: Sequence[Message]
    owner: str = ""
    client_tools: frozenset[str] = frozenset()
    on_evicted: Callable[[Sequence[Message]], None] | None = None
    origins: dict[int, Message] = field(default_factory=dict[int, Message])
    round_limit: RoundLimit | None = None
    task_rounds: TaskRounds | None = None
    give_back: Callable[[Stats], None] | None = None

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        """Prefill the first round; hidden rounds leave if the prompt does not fit with them."""
        try:
            first = await self.backend.prefill_session(session, callback)
        except ContextFullError:
            if not self.origins:
                raise
            self._forget_hidden()
            first = await self.backend.prefill_session(session, callback)
        return TurnPrompt(first)

    async def prefill_choices(
        self, session: Session, callback: EventCallback, count: int
    ) -> list[Prefilled]:
        """Several answers are refused before; this one is the first of them."""
        return [await self.prefill_session(session, callback)]

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """Run the turn; `max_tokens` limits all its rounds together."""
        if not isinstance(prefilled, TurnPrompt):
            raise TypeError("the prompt is another source's")
        prompt, text = prefilled, AnswerText(callback, self.parts.show)

        def listen(event: Event) -> bool:
            prompt.update_logprobs()
            if isinstance(event, Failure) and event.error == "TurnStopped":
                text.note(event.message)
                logger.info("%s", event.message)
            return text.listen(event)

        evicts = self.on_evicted is not None
        limits = replace(self.parts.limits, total_tokens=max_tokens, evicts=evicts)
        tools = ReportedTools(self.parts.tools, text, prompt, limits.max_rounds)
        backend = TurnBackend(self.backend, prompt, text, self.round_limit)
        before = list(self.session.messages)
        async with self._sub_agents(prompt, limits):
            outcome = await continue_turn(
                self.session, backend, tools, listen, limits, self.client_tools
            )
        return self._answer(outcome, prompt, text, before)

    @asynccontextmanager
    async def _sub_agents(self, prompt: TurnPrompt, limits: TurnLimits) -> AsyncGenerator[None]:
        """Let calls of `task` find the sub-agents of this turn."""
        rounds, give_back = self.task_rounds, self.give_back
        if rounds is None:
            yield
            return
        if give_back is not None:
            rounds.give_back = lambda: give_back(total([g.stats for g in prompt.generations]))
        own = TaskLimits(limits, self.parts.max_tasks)
        tasks = tasks_of_turn(self.session, rounds, own, self.parts.offer)
        try:
            with running(replace(tasks, client_tools=self.client_tools)):
                yield
        finally:
            await rounds.aclose()

    def report_evicted(self, messages: Sequence[Message]) -> None:
        """Pass on evicted messages; a hidden one counts as the answer that the client knows."""
        visible = {id(m): m for m in (self.origins.get(id(part), part) for part in messages)}
        if self.on_evicted is not None and visible:
            self.on_evicted(list(visible.values()))

    def _answer(
        self, outcome: TurnOutcome, prompt: TurnPrompt, text: AnswerText, before: list[Message]
    ) -> Generation:
        """The turn as one generation; its hidden rounds are kept for the next request."""
        last = prompt.generations[-1]
        present = {id(message) for message in self.session.messages}
        self.report_evicted([message for message in before if id(message) not in present])
        old = {id(message) for message in before}
        added = [message for message in self.session.messages if id(message) not in old]
        if len(added) < 2:  # one generation, and nothing ran
            return last
        reason = outcome.finish_reason
        if reason is FinishReason.ERROR and last.finish_reason is not FinishReason.ERROR:
            reason = FinishReason.LENGTH  # the limit of rounds, or of equal calls
        calls = [call for call in last.message.tool_calls if call.name in self.client_tools]
        answer = Message.assistant(
            text.content.complete,
            text.reasoning.complete,
            tuple(calls) if reason is FinishReason.TOOL_CALLS else (),
        )
        if reason is not FinishReason.ERROR:
            self.parts.rounds.keep(self.owner, self.history, answer, added)
        stats = total([generation.stats for generation in prompt.generations])
        logprobs = None if last.logprobs is None else tuple(prompt.logprobs or ())
        return replace(last, message=answer, finish_reason=reason, stats=stats, logprobs=logprobs)

    def _forget_hidden(self) -> None:
        """Go back to the conversation as the client sees it."""
        self.origins = {}
        self.session.clear()
        for message in self.history:
            self.session.add(message)
