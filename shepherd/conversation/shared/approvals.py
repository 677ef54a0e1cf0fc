"""Asks the client of a request before a tool runs."""

import asyncio
from dataclasses import dataclass

from shepherd.conversation.shared.log import UpdateLog
from shepherd.conversation.shared.presence import Presence
from shepherd.conversation.shared.protocol import RefusalCode, SharedSessionError, UpdateKind
from shepherd.conversation.shared.questions import OpenQuestion, question_is_over
from shepherd.conversation.shared.requests import PromptRequest
from shepherd.messages import JsonObject
from shepherd.tasks import end_tasks
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice

AWAY_SECONDS = 120.0
"""Seconds after which an absent client can't approve any more."""

NOT_LISTENING = "denied: approval needed, and the client that sent the request does not listen"
CANCELLED = "cancelled"


@dataclass(slots=True, eq=False)
class PendingApproval(OpenQuestion):
    """A question about a call of a request."""

    request: PromptRequest


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
        pending = PendingApproval(request, self.request)
        self._pending[pending.id] = pending
        self._tell(UpdateKind.APPROVAL_NEEDED, pending, pending.to_json(), pending.request.client)
        decision, reason = CANCELLED, ""
        try:
            approval = await self._wait(pending)
            decision = approval.choice.value
            reason = approval.feedback or ("" if pending.answer.done() else approval.reason)
        finally:
            del self._pending[pending.id]
            data = {
                "id": pending.id,
                "tool": request.call.name,
                "decision": decision,
                "reason": reason,
            }
            self._tell(UpdateKind.APPROVAL_DECIDED, pending, data)
        return approval

    def decide(self, id: str, client: str, approval: Approval) -> None:
        """Set a client's answer; raises SharedSessionError for a closed or another's question."""
        pending = self._pending.get(id)
        if pending is None or pending.answer.done():
            raise question_is_over()
        if pending.request.client != client:
            message = "Only the client that sent the request may answer; see X-Client-ID."
            raise SharedSessionError(RefusalCode.NOT_YOUR_REQUEST, message)
        pending.decide(approval)

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
