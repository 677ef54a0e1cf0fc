"""The agent of a server: its tools, its limits, and what it remembers for its clients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from shepherd.backends.base import ModelInfo
from shepherd.config.choices import ShowToolCalls
from shepherd.messages import Message, ToolSpec
from shepherd.server.access.audit import AuditedTools, AuditLog
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.server.agent.rounds import HiddenRounds
from shepherd.server.agent.tasks import Accounts
from shepherd.server.agent.turn import AgentTurn, TurnParts
from shepherd.session import Session, TokenLedger
from shepherd.tools.deferred import SearchResults
from shepherd.tools.runner import ToolRunner
from shepherd.turn import TurnLimits


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
    ) -> AgentTurn:
        """The turn that answers the session of a request of `owner`.

        The client's tools replace those of the same name. `on_evicted` is that of `AgentTurn`.
        """
        client_tools = frozenset(tool.name for tool in session.tools)
        own = [tool for tool in self.offer(model) if tool.name not in client_tools]
        tools = AuditedTools(self.tools, self.audit, model.id)
        spliced = self.rounds.splice(owner, session.messages)
        return AgentTurn(
            parts=TurnParts(tools, self.limits, self.show, self.rounds, self.offer, self.max_tasks),
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
