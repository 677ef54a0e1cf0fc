"""Asks clients whose keys may approve before a tool of the agent runs."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from msgspec import Struct, field, structs

from shepherd.conversation.shared import approvals, updates
from shepherd.messages import JsonObject
from shepherd.server.record import CallOrigin, current_origin
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice

POLL_SECONDS = 10.0
"""A client that has read the list of questions counts as present for this time."""

CHECK_SECONDS = 0.5
NOBODY = "denied: approval needed, and nobody who may approve is connected"
TOO_LATE = "denied: approval needed, and nobody has answered within {seconds:g} seconds"
ENDING = "denied: approval needed, and the server is ending"


@dataclasses.dataclass(slots=True, eq=False)
class AgentQuestion(approvals.OpenQuestion):
    """A question about a call of the agent; `expires` is a Unix time."""

    origin: CallOrigin
    expires: float

    def to_json(self) -> JsonObject:
        """The question in the form for clients."""
        question = super(AgentQuestion, self).to_json()
        return {**question, **structs.asdict(self.origin), "expires": round(self.expires, 3)}


class ClientApprovals(Struct):
    """An `Approver` that asks all clients that may approve; the first answer counts.

    A call waits for `seconds`. It is denied at once if no such client is connected, and soon after
    the last one has left. `log` has the updates for these clients.
    """

    seconds: float
    log: updates.UpdateLog = field(default_factory=updates.UpdateLog)
    clock: Callable[[], float] = time.monotonic
    closed: bool = False
    _questions: dict[str, AgentQuestion] = field(default_factory=dict[str, AgentQuestion])
    _streams: int = 0
    _last_read: float = float("-inf")

    def questions(self) -> list[AgentQuestion]:
        """The open questions, the oldest first."""
        return list(self._questions.values())

    def note_reader(self) -> None:
        """Note that a client that may approve has read the list."""
        self._last_read = self.clock()

    @contextmanager
    def listening(self) -> Generator[None]:
        """A client that may approve listens for the duration of the context."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The answer of a client; a no if there is none."""
        refusal = self._refusal()
        if refusal:
            return Approval(Choice.DENY, reason=refusal, unanswered=True)
        question = AgentQuestion(request, current_origin(), time.time() + self.seconds)
        self._questions[question.id] = question
        self.log.publish(updates.UpdateKind.APPROVAL_NEEDED, question.to_json())
        decision, by = approvals.CANCELLED, ""  # if the turn ends while it waits
        try:
            approval = await self._wait(question)
            decision, by = approval.choice.value, approval.by
        finally:
            del self._questions[question.id]
            data = {"id": question.id, "tool": request.call.name, "decision": decision, "by": by}
            self.log.publish(updates.UpdateKind.APPROVAL_DECIDED, data)
        return approval

    def decide(self, id: str, approval: Approval) -> None:
        """Answer a question; raises SharedSessionError if that is over, or lacks the choice."""
        question = self._questions.get(id)
        if question is None:
            raise approvals.question_is_over()
        question.decide(approval)

    def close(self) -> None:
        """Deny the open questions and all later ones, and end the streams of updates."""
        self.closed = True
        for question in self._questions.values():
            if not question.answer.done():  # one that was just answered is still in the table
                question.answer.set_result(Approval(Choice.DENY, reason=ENDING, unanswered=True))
        self.log.close()

    async def _wait(self, question: AgentQuestion) -> Approval:
        """The answer to a question, or a denial at the end of its time or without a client."""
        end = self.clock() + self.seconds
        while not question.answer.done():
            seconds_left = end - self.clock()
            is_late = seconds_left <= 0
            reason = TOO_LATE.format(seconds=self.seconds) if is_late else self._refusal()
            if reason:
                return Approval(Choice.DENY, reason=reason, unanswered=True)
            # looked at again and again, because a reader of the list just stays away
            await asyncio.wait({question.answer}, timeout=min(seconds_left, CHECK_SECONDS))
        return question.answer.result()

    def _refusal(self) -> str:
        """The reason why there is nobody to ask, "" if there is somebody."""
        if self.closed:
            return ENDING
        is_present = self._streams > 0 or self.clock() - self._last_read < POLL_SECONDS
        return "" if is_present else NOBODY
