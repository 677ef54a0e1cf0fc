"""Asks the client of a request before a tool runs."""

import asyncio
import secrets
from dataclasses import dataclass

from shepherd.conversation.shared.log import UpdateLog
from shepherd.conversation.shared.presence import Presence
from shepherd.conversation.shared.protocol import RefusalCode, SharedSessionError, UpdateKind
from shepherd.conversation.shared.requests import PromptRequest
from shepherd.messages import JsonObject
from shepherd.tasks import end_tasks
from shepherd.tools.base import Access
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.rules import Rule

AWAY_SECONDS = 120.0
"""Seconds after which an absent client can't approve any more."""

NOT_LISTENING = "denied: approval needed, and the client that sent the request does not listen"
CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, eq=False)
class PendingApproval:
    """A question without an answer so far."""

    id: str
    request: PromptRequest
    question: ApprovalRequest
    answer: asyncio.Future[Approval]

    def to_json(self) -> JsonObject:
        """The question in the form for its client."""
        return {
            "id": self.id,
            "tool": self.question.call.name,
            "call_id": self.question.call.id,
            "arguments": self.question.call.arguments,
            "preview": self.question.preview,
            "accesses": [_access_to_json(access) for access in self.question.accesses],
            "cause": self.question.cause,
            "asker": self.question.caller,
            "sandbox": self.question.sandbox,
            "session": [_rule_to_json(rule) for rule in self.question.session],
            "always": [_rule_to_json(rule) for rule in self.question.always],
        }


class ClientApprover:
    """An `Approver` that asks only the client of the current request.

    If the client is away for AWAY_SECONDS, or was never connected, the answer is no.
    """

    def __init__(self, log: UpdateLog, presence: Presence) -> None:
        self.request: PromptRequest | None = None
        self._log = log
        self._presence = presence
        self._pending: dict[str, PendingApproval] = {}

    @property
    def waiting(self) -> bool:
        """Whether a question waits for its answer."""
        return bool(self._pending)

    def pending(self, client: str) -> list[PendingApproval]:
        """The questions that this client must answer."""
        return [p for p in self._pending.values() if p.request.client == client]

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The client's answer."""
        assert self.request is not None, "tools run in requests only"
        answer: asyncio.Future[Approval] = asyncio.get_running_loop().create_future()
        key = f"approval_{secrets.token_hex(8)}"
        pending = PendingApproval(key, self.request, request, answer)
        self._pending[key] = pending
        self._tell(UpdateKind.APPROVAL_NEEDED, pending, pending.to_json(), pending.request.client)
        decision, reason = CANCELLED, ""
        try:
            approval = await self._wait(pending)
            decision = approval.choice.value
            reason = approval.feedback or ("" if answer.done() else approval.reason)
        finally:
            del self._pending[key]
            data = {"id": key, "tool": request.call.name, "decision": decision, "reason": reason}
            self._tell(UpdateKind.APPROVAL_DECIDED, pending, data)
        return approval

    def decide(self, id: str, client: str, approval: Approval) -> None:
        """Set a client's answer; raises SharedSessionError for a closed or another's question."""
        pending = self._pending.get(id)
        if pending is None or pending.answer.done():
            message = "No such question waits for an answer."
            raise SharedSessionError(RefusalCode.APPROVAL_NOT_FOUND, message)
        if pending.request.client != client:
            message = "Only the client that sent the request may answer; see X-Client-ID."
            raise SharedSessionError(RefusalCode.NOT_YOUR_REQUEST, message)
        if approval.choice not in (Choice.ONCE, Choice.DENY) and not pending.question.rules_for(
            approval.choice
        ):
            message = f"No rule can stand for '{approval.choice}' here; answer once or deny."
            raise SharedSessionError(RefusalCode.INVALID_DECISION, message)
        pending.answer.set_result(approval)

    async def _wait(self, pending: PendingApproval) -> Approval:
        away = asyncio.create_task(self._presence.until_away(pending.request.client, AWAY_SECONDS))
        try:
            await asyncio.wait({pending.answer, away}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(away)
        if pending.answer.done():
            return pending.answer.result()
        return Approval(Choice.DENY, reason=NOT_LISTENING)

    def _tell(
        self, kind: UpdateKind, pending: PendingApproval, data: JsonObject, addressee: str = ""
    ) -> None:
        self._log.publish(kind, data, request=pending.request.id, addressee=addressee)


def _access_to_json(access: Access) -> JsonObject:
    return {"kind": access.kind.value, "target": access.target, "claim": access.claim.value}


def _rule_to_json(rule: Rule) -> JsonObject:
    return {
        "tool": rule.tool,
        "pattern": rule.pattern,
        "decision": rule.decision.value,
        "scope": rule.scope,
        "lifetime": rule.lifetime.value,
        "text": rule.describe(),
    }
