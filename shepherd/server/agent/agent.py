"""The agent of a server: its tools, its limits, what it remembers for its clients, and its turns.

A turn takes the place of one generation, so every API of the server can have it without knowing it.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from shepherd.backends.base import Backend, Generation, ModelInfo, Observer, Prefilled
from shepherd.config.section import ShowToolCalls
from shepherd.errors import ContextFullError
from shepherd.events import Event, EventCallback, Failure, FinishReason
from shepherd.messages import Message, ToolSpec
from shepherd.server.access.audit import AuditedTools, AuditLog
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.server.agent.rounds import HiddenRounds
from shepherd.server.agent.tasks import Accounts, TaskRounds, running, tasks_of_turn
from shepherd.server.agent.text import AnswerText
from shepherd.server.agent.turn import ReportedTools, TurnPrompt, TurnRounds, total
from shepherd.session import Session, TokenLedger
from shepherd.tools.deferred import SearchResults
from shepherd.tools.runner import ToolRunner
from shepherd.turn import ToolExecutor, TurnLimits, TurnOutcome, continue_turn

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Agent:
    """Makes turns of requests.

    `tools` runs the calls under the rules; its approver decides on calls that need approval.
    `offer` selects the tools for a model. `system_message` is for requests without one.
    `approvals` is the approver of `tools` if clients can approve. `audit` gets a line for each
    call. `max_tasks` sub-agents of a turn work at the same time.
    """

    tools: ToolRunner
    offer: Callable[[ModelInfo], Sequence[ToolSpec]]
    system_message: str = ""
    limits: TurnLimits = field(default_factory=TurnLimits)
    show: ShowToolCalls = ShowToolCalls.REASONING
    rounds: HiddenRounds = field(default_factory=HiddenRounds)
    approvals: ClientApprovals | None = None
    audit: AuditLog = field(default_factory=AuditLog)
    max_tasks: int = 1

    def turn(
        self,
        model: ModelInfo,
        session: Session,
        accounts: Accounts,
        owner: str = "",
        on_evicted: Callable[[Sequence[Message]], None] | None = None,
    ) -> "AgentTurn":
        """The turn that answers the session of a request of `owner`.

        The client's tools replace those of the same name. `on_evicted` is that of `AgentTurn`.
        """
        client_tools = frozenset(tool.name for tool in session.tools)
        own = [tool for tool in self.offer(model) if tool.name not in client_tools]
        spliced = self.rounds.splice(owner, session.messages)
        return AgentTurn(
            agent=self,
            tools=AuditedTools(self.tools, self.audit, model.id),
            accounts=accounts,
            session=replace(
                session,
                system_message=session.system_message or self.system_message,
                messages=spliced.messages,
                tools=[*own, *session.tools],
                deferred=SearchResults(self.tools.registry),
                ledger=TokenLedger(),
                times=[],
            ),
            history=session.messages,
            owner=owner,
            client_tools=client_tools,
            on_evicted=on_evicted,
            origins=spliced.origins,
        )


@dataclass(slots=True)
class AgentTurn(Observer):
    """Answers `session` with a whole turn where a model would generate.

    `history` are the messages as the client sent them, and `owner` is the client. Calls of
    `client_tools` are the answer's. With `on_evicted`, messages may leave a full context while the
    turn runs, and it gets them.
    """

    agent: Agent
    tools: ToolExecutor
    accounts: Accounts
    session: Session
    history: Sequence[Message]
    owner: str = ""
    client_tools: frozenset[str] = frozenset()
    on_evicted: Callable[[Sequence[Message]], None] | None = None
    origins: dict[int, Message] = field(default_factory=dict[int, Message])

    @asynccontextmanager
    async def prefilled(
        self, backend: Backend, session: Session, callback: EventCallback, count: int = 1
    ) -> AsyncGenerator[Sequence[Prefilled]]:
        """Prefill the first round; hidden rounds leave if the prompt does not fit with them."""
        watch = self.accounts.watch
        async with AsyncExitStack() as held:
            try:
                prefilling = watch.prefilled(backend, session, callback)
                (first,) = await held.enter_async_context(prefilling)
            except ContextFullError:
                if not self.origins:
                    raise
                self._forget_hidden()
                prefilling = watch.prefilled(backend, session, callback)
                (first,) = await held.enter_async_context(prefilling)
            yield [TurnPrompt(first, held)]

    async def generate(
        self, backend: Backend, prompt: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """Run the turn; `max_tokens` limits all its rounds together."""
        if not isinstance(prompt, TurnPrompt):
            raise TypeError("the prompt was not made by a turn")
        text = AnswerText(callback, self.agent.show)

        def listen(event: Event) -> bool:
            prompt.update_logprobs()
            if isinstance(event, Failure) and event.error == "TurnStopped":
                text.note(event.message)
                logger.info("%s", event.message)
            return text.listen(event)

        evicts = self.on_evicted is not None
        limits = replace(self.agent.limits, total_tokens=max_tokens, evicts=evicts)
        tools = ReportedTools(self.tools, text, prompt, limits.max_rounds)
        before = list(self.session.messages)
        async with self._sub_agents(backend, prompt, limits):
            limits = replace(limits, observer=TurnRounds(prompt, text, self.accounts))
            outcome = await continue_turn(
                self.session, backend, tools, listen, limits, self.client_tools
            )
        return self._answer(outcome, prompt, text, before)

    @asynccontextmanager
    async def _sub_agents(
        self, backend: Backend, prompt: TurnPrompt, limits: TurnLimits
    ) -> AsyncGenerator[None]:
        """Let calls of `task` find the sub-agents of this turn."""
        rounds = TaskRounds(
            backend, self.accounts, lambda: self.accounts.budget.give_back(prompt.done())
        )
        agent = self.agent
        tasks = tasks_of_turn(
            self.session, rounds, limits, agent.max_tasks, agent.offer, self.client_tools
        )
        try:
            with running(tasks):
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
            self.agent.rounds.keep(self.owner, self.history, answer, added)
        stats = total([generation.stats for generation in prompt.generations])
        logprobs = None if last.logprobs is None else tuple(prompt.logprobs or ())
        return replace(last, message=answer, finish_reason=reason, stats=stats, logprobs=logprobs)

    def _forget_hidden(self) -> None:
        """Go back to the conversation as the client sees it."""
        self.origins = {}
        self.session.clear()
        for message in self.history:
            self.session.add(message)
