"""The agent of a server: its tools, its limits, what it remembers for its clients, and its turns.

A turn takes the place of one generation, so every API of the server can have it without knowing it.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from shepherd.agents.progress import LAST_ROUND
from shepherd.backends.base import Backend, Generation, ModelInfo, Observer, Prefilled
from shepherd.config.section import ShowToolCalls
from shepherd.errors import ContextFullError
from shepherd.events import (
    MEASURES,
    Event,
    EventCallback,
    Failure,
    FinishReason,
    Stats,
    ignore_events,
)
from shepherd.messages import Message, ToolCall, ToolSpec
from shepherd.server.access.audit import AuditedTools, AuditLog
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.server.agent.rounds import HiddenRounds
from shepherd.server.agent.tasks import Accounts, TaskRounds, smaller_limit, sub_agents
from shepherd.server.agent.text import AnswerText
from shepherd.server.errors import ApiError
from shepherd.session import Session, TokenLedger
from shepherd.tools.deferred import SearchResults
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolResult
from shepherd.turn import OutOfTokensError, ToolExecutor, TurnLimits, TurnOutcome, continue_turn

logger = logging.getLogger(__name__)


class Agent(Struct, frozen=True):
    """What the turns of all requests share.

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


class AgentTurn(Observer):
    """Answers a request with a whole turn where a model would generate.

    Its `session` also has the agent's tools, and the rounds that the client does not see.
    """

    def __init__(
        self,
        agent: Agent,
        model: ModelInfo,
        session: Session,
        accounts: Accounts,
        owner: str = "",
        on_evicted: Callable[[Sequence[Message]], None] | None = None,
    ) -> None:
        """`session` is that of the request, and `owner` is the client.

        The client's tools replace those of the same name, and their calls are the answer's. With
        `on_evicted`, messages may leave a full context while the turn runs, and it gets them.
        """
        self._agent = agent
        self._accounts = accounts
        self._owner = owner
        self._on_evicted = on_evicted
        self._client_history = session.messages
        self._client_tools = frozenset(tool.name for tool in session.tools)
        self._tools = AuditedTools(agent.tools, agent.audit, model.id)
        agent_tools = [tool for tool in agent.offer(model) if tool.name not in self._client_tools]
        spliced = agent.rounds.splice(owner, session.messages)
        self._visible_answers = spliced.visible_answers
        """For a hidden message, by its identity, the answer that the client has of it."""
        self.session = replace(
            session,
            system_message=session.system_message or agent.system_message,
            messages=spliced.messages,
            tools=[*agent_tools, *session.tools],
            deferred=SearchResults(agent.tools.registry),
            ledger=TokenLedger(),
            times=[],
        )

    @asynccontextmanager
    async def prefilled(
        self, backend: Backend, session: Session, callback: EventCallback, count: int = 1
    ) -> AsyncGenerator[Sequence[Prefilled]]:
        """Prefill the first round; hidden rounds leave if the prompt does not fit with them.

        A turn gives one answer, so `count` is always 1.
        """
        prefilled = self._accounts.watch.prefilled
        async with AsyncExitStack() as first_round:
            enter = first_round.enter_async_context
            try:
                (first,) = await enter(prefilled(backend, session, callback))
            except ContextFullError:
                if not self._visible_answers:  # nothing is hidden that could leave
                    raise
                self._forget_hidden()
                (first,) = await enter(prefilled(backend, session, callback))
            yield [TurnPrompt(first, first_round)]

    async def generate(
        self, backend: Backend, prompt: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """Run the turn; `max_tokens` limits all its rounds together."""
        if not isinstance(prompt, TurnPrompt):
            raise TypeError("the prompt was not made by a turn")
        agent, accounts, client_tools = self._agent, self._accounts, self._client_tools
        text = AnswerText(callback, agent.show)

        def listen(event: Event) -> bool:
            prompt.update_logprobs()
            # the client reads in its answer why the turn stopped
            if isinstance(event, Failure) and event.error == "TurnStopped":
                text.note(event.message)
                logger.info("%s", event.message)
            return text.listen(event)

        evicts = self._on_evicted is not None
        limits = replace(agent.limits, total_tokens=max_tokens, evicts=evicts)
        tools = ReportedTools(self._tools, text, prompt, limits.max_rounds)
        messages_before = list(self.session.messages)
        rounds = TaskRounds(backend, accounts, lambda: accounts.budget.give_back(prompt.done()))
        tasks = sub_agents(self.session, rounds, limits, agent.max_tasks, agent.offer, client_tools)
        async with tasks:
            limits = replace(limits, observer=TurnRounds(prompt, text, accounts))
            outcome = await continue_turn(
                self.session, backend, tools, listen, limits, client_tools
            )
        return self._answer(outcome, prompt, text, messages_before)

    def report_evicted(self, messages: Sequence[Message]) -> None:
        """Pass on evicted messages; a hidden one counts as the answer that the client knows."""
        visible: dict[int, Message] = {}  # by identity: several hidden ones have one answer
        for message in messages:
            known_to_client = self._visible_answers.get(id(message), message)
            visible[id(known_to_client)] = known_to_client
        if self._on_evicted is not None and visible:
            self._on_evicted(list(visible.values()))

    def _answer(
        self,
        outcome: TurnOutcome,
        prompt: "TurnPrompt",
        text: AnswerText,
        messages_before: list[Message],
    ) -> Generation:
        """The turn as one generation; its hidden rounds are kept for the next request."""
        last = prompt.generations[-1]
        # messages are compared by identity, because equal ones may occur several times
        ids_now = {id(message) for message in self.session.messages}
        self.report_evicted([one for one in messages_before if id(one) not in ids_now])
        ids_before = {id(message) for message in messages_before}
        added = [one for one in self.session.messages if id(one) not in ids_before]
        if len(added) < 2:  # one generation, and nothing ran
            return last
        reason = outcome.finish_reason
        if reason is FinishReason.ERROR and last.finish_reason is not FinishReason.ERROR:
            reason = FinishReason.LENGTH  # the limit of rounds, or of equal calls
        # a call of a server's tool that did not run any more is nothing that a client can run
        calls = [call for call in last.message.tool_calls if call.name in self._client_tools]
        answer = Message.assistant(
            text.content.complete,
            text.reasoning.complete,
            tuple(calls) if reason is FinishReason.TOOL_CALLS else (),
        )
        if reason is not FinishReason.ERROR:  # one that broke off is an error for the client
            self._agent.rounds.keep(self._owner, self._client_history, answer, added)
        stats = total([generation.stats for generation in prompt.generations])
        logprobs = None if last.logprobs is None else tuple(prompt.logprobs or ())
        return replace(last, message=answer, finish_reason=reason, stats=stats, logprobs=logprobs)

    def _forget_hidden(self) -> None:
        """Go back to the conversation as the client sees it, without the server's own rounds."""
        self._visible_answers = {}
        self.session.clear()
        for message in self._client_history:
            self.session.add(message)


class TurnPrompt(Prefilled):
    """The prompt of a turn: that of its first round, then of the round that runs.

    `first_round` is what the first round holds. It is given back with that round, long before the
    turn ends, because the next rounds may need the same place in the model.
    """

    def __init__(self, first: Prefilled, first_round: AsyncExitStack) -> None:
        self.prompt_tokens = first.prompt_tokens
        self.cached_tokens = first.cached_tokens
        self.generations: list[Generation] = []  # of the rounds that have ended
        self.current = first  # the prompt of the round that runs, or ended last
        self._first_round: AsyncExitStack | None = first_round  # until that round takes it
        self._copied_logprobs = 0  # those of the current round that the answer has already
        self._is_running = True  # whether the current round is not among `generations` yet

    def take_first(self) -> AsyncExitStack | None:
        """What the first round holds, once; who takes it gives it back."""
        first_round, self._first_round = self._first_round, None
        return first_round

    def begin_round(self, prefilled: Prefilled) -> None:
        """Continue with the prompt of another round."""
        self.update_logprobs()  # the last ones of the round before
        self.current, self._copied_logprobs, self._is_running = prefilled, 0, True

    def end_round(self, generation: Generation) -> None:
        """Note the result of the round."""
        self.generations.append(generation)
        self._is_running = False

    def update_logprobs(self) -> None:
        """Take over the log probabilities that are new."""
        new = (self.current.logprobs or [])[self._copied_logprobs :]
        if new:
            self.logprobs = self.logprobs or []
            self.logprobs += new
            self._copied_logprobs += len(new)

    def done(self) -> Stats:
        """The measures of the rounds that have ended."""
        return total([generation.stats for generation in self.generations])

    def stats(self) -> Stats:
        """The measures of all rounds so far; one that has ended is among `generations`."""
        stats = [generation.stats for generation in self.generations]
        return total([*stats, self.current.stats()] if self._is_running else stats)

    @property
    def generated(self) -> Sequence[int]:
        return self.current.generated

    @property
    def prompt_text(self) -> str:
        return self.current.prompt_text


class TurnRounds(Observer):
    """The rounds of one turn: its first prompt is ready, and the key pays for each further one."""

    def __init__(self, prompt: TurnPrompt, text: AnswerText, accounts: Accounts) -> None:
        self._prompt = prompt
        self._text = text
        self._accounts = accounts
        self._max_tokens = 0  # of the round that comes, as the key allows it; 0: no limit

    @asynccontextmanager
    async def prefilled(
        self, backend: Backend, session: Session, callback: EventCallback, count: int = 1
    ) -> AsyncGenerator[Sequence[Prefilled]]:
        """The prompt of the next round; raises OutOfTokensError if the key can't pay for it."""
        first_round = self._prompt.take_first()
        if first_round is not None:
            async with first_round:
                yield [self._prompt.current]
            return
        try:
            self._max_tokens = await self._accounts.budget.next_round(session, self._prompt.done())
        except ApiError as error:  # the answer so far is good, and says why it ends
            self._text.note(error.message)
            raise OutOfTokensError(error.message) from error
        async with self._accounts.watch.prefilled(backend, session, callback, count) as prompts:
            self._prompt.begin_round(prompts[0])
            yield prompts

    async def generate(
        self, backend: Backend, prompt: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """The answer of a round, within what the turn and the key have left."""
        limit = smaller_limit(max_tokens, self._max_tokens)
        generation = await self._accounts.watch.generate(backend, prompt, callback, limit)
        self._prompt.end_round(generation)
        self._text.end_generation(generation.message)
        return generation


class ReportedTools(Struct, frozen=True):
    """Runs calls, adds a line about each, and tells the model if its next round is the last."""

    tools: ToolExecutor
    text: AnswerText
    prompt: TurnPrompt
    max_rounds: int

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        """The result of a call, which warns the model before its last round."""
        self.text.begin_call(call)
        result = await self.tools.run(call, output_bytes, on_event)
        self.text.end_call(call, result)
        one_round_is_left = len(self.prompt.generations) == self.max_rounds - 1
        if not one_round_is_left:
            return result
        # the model gets its warning with the result, so that it answers instead of calling again
        return replace(result, content=f"{result.content}\n{LAST_ROUND}")


def total(stats: Sequence[Stats]) -> Stats:
    """The sums over all rounds, with the context after the last one."""
    if not stats:
        return Stats()
    # a measure that a backend does not tell is None
    sums: dict[str, Any] = {
        name: sum(getattr(of_round, name) or 0 for of_round in stats) for name in MEASURES
    }
    last = stats[-1]
    sums["context_used"], sums["context_size"] = last.context_used, last.context_size
    if all(of_round.cost is None for of_round in stats):
        sums["cost"] = None  # unknown, and not nothing
    return Stats(**sums)
