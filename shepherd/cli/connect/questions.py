"""Questions of a server about calls of tools: this terminal shows them and returns the answers."""

import asyncio
from collections.abc import Callable

from shepherd.cli.connect.client import SharedSessionClient
from shepherd.errors import ShepherdError
from shepherd.messages import JsonObject, ToolCall
from shepherd.tools.base import Access, AccessKind, Claim
from shepherd.tools.permissions.approval import (
    DENIED_BY_USER,
    Approval,
    ApprovalRequest,
    Approver,
)
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule


class RemoteQuestions:
    """Asks `approver` and sends the answers; `notice` gets a sentence if one does not arrive."""

    def __init__(
        self, client: SharedSessionClient, approver: Approver, notice: Callable[[str], None]
    ) -> None:
        self._client = client
        self._approver = approver
        self._notice = notice
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that wait for answers."""
        return list(self._tasks.values())

    def ask(self, data: JsonObject) -> None:
        """Ask a question, unless it waits for its answer already."""
        key = str(data["id"])
        if key not in self._tasks:
            task = asyncio.create_task(self._answer(key, data))
            self._tasks[key] = task
            task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def withdraw(self, key: str) -> bool:
        """Stop asking, because the question is decided; whether it waited for an answer."""
        task = self._tasks.get(key)
        return task is not None and task.cancel()

    def keep_only(self, keys: set[str]) -> None:
        """Withdraw all other questions."""
        for key in self._tasks.keys() - keys:
            self.withdraw(key)

    async def _answer(self, key: str, data: JsonObject) -> None:
        approval = await self._approver.ask(approval_request(data))
        try:
            await self._client.decide(
                key, approval.choice.value, reason_of(approval), approval.values
            )
        except ShepherdError as error:
            self._notice(f"the answer did not reach the server: {error}")


def approval_request(data: JsonObject) -> ApprovalRequest:
    """The question of an `approval_needed`."""
    call = ToolCall(str(data["call_id"]), str(data["tool"]), dict(data["arguments"]))
    return ApprovalRequest(
        call=call,
        accesses=_accesses(data.get("accesses", [])),
        preview=str(data["preview"]),
        session=_rules(data["session"]),
        always=_rules(data["always"]),
        cause=str(data["cause"]),
        caller=_caller(data),
        sandbox=str(data.get("sandbox", "")),
        fields=tuple(map(str, data.get("fields", []))),
    )


def _caller(data: JsonObject) -> str:
    """The model behind a tool, or the key of the client behind the agent."""
    key = str(data.get("key", ""))
    return str(data.get("asker", "")) or (f"the key {key}" if key else "")


def reason_of(approval: Approval) -> str:
    """The reason for the model with the answer."""
    if approval.feedback or approval.reason == DENIED_BY_USER:
        return approval.feedback
    return approval.reason


def _accesses(data: list[JsonObject]) -> tuple[Access, ...]:
    return tuple(
        Access(AccessKind(access["kind"]), str(access["target"]), Claim(access["claim"]))
        for access in data
    )


def _rules(data: list[JsonObject]) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            str(rule["tool"]),
            str(rule["pattern"]),
            Decision(rule["decision"]),
            str(rule["scope"]),
            Lifetime(rule["lifetime"]),
        )
        for rule in data
    )
