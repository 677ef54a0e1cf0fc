"""Asks the client of a request before a tool runs; a client that stays away can't approve."""

import asyncio
import math
import secrets
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from shepherd.conversation.shared import requests, updates
from shepherd.messages import JsonObject
from shepherd.tasks import end_tasks
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.rules import Rule

AWAY_SECONDS = 120.0
"""Seconds after which an absent client can't approve any more."""

NOT_LISTENING = "denied: approval needed, and the client that sent the request does not listen"
CANCELLED = "cancelled"


@dataclass(slots=True, eq=False)
class OpenQuestion:
    """A question without an answer so far; made on the loop that waits for it."""

    question: ApprovalRequest
    id: str = field(default_factory=lambda: f"approval_{secrets.token_hex(8)}", init=False)
    answer: asyncio.Future[Approval] = field(default_factory=asyncio.Future[Approval], init=False)

    def to_json(self) -> JsonObject:
        """The question in the form for its client."""
        question = self.question
        return {
            "id": self.id,
            "tool": question.call.name,
            "call_id": question.call.id,
            "arguments": question.call.arguments,
            "preview": question.preview,
            "detail": question.detail,
            "accesses": [access.to_json() for access in question.accesses],
            "cause": question.cause,
            "asker": question.caller,
            "sandbox": question.sandbox,
            "session": [_rule_to_json(rule) for rule in question.session],
            "always": [_rule_to_json(rule) for rule in question.always],
            "fields": [*question.fields],
            "parts": [msgspec.to_builtins(part) for part in question.parts],
        }

    def decide(self, approval: Approval) -> None:
        """Set the answer; the first one counts.

        Raises SharedSessionError for a second one, and for a choice or part that it lacks.
        """
        if self.answer.done():
            raise question_is_over()
        choice = approval.choice
        if choice not in (Choice.ONCE, Choice.DENY) and not self.question.rules_for(choice):
            message = f"No rule can stand for '{choice}' here; answer once or deny."
            raise updates.SharedSessionError(updates.RefusalCode.INVALID_DECISION, message)
        numbers = range(1, len(self.question.parts) + 1)
        if approval.parts is not None and (
            choice is not Choice.ONCE or any(part not in numbers for part in approval.parts)
        ):
            message = f"Only 'once' takes parts, from the {len(numbers)} of the question."
            raise updates.SharedSessionError(updates.RefusalCode.INVALID_DECISION, message)
        self.answer.set_result(approval)


def question_is_over() -> updates.SharedSessionError:
    """The error for an answer to a question that does not wait any more."""
    message = "No such question waits for an answer."
    return updates.SharedSessionError(updates.RefusalCode.APPROVAL_NOT_FOUND, message)


def _rule_to_json(rule: Rule) -> JsonObject:
    """Its fields, and the rule as a sentence for the user."""
    return {**msgspec.to_builtins(rule), "text": rule.describe()}


MAX_REMEMBERED = 1000


class Clock:
    """The time in seconds from an arbitrary moment; tests wind on one of their own."""

    def now(self) -> float:
        """The time."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Presence(Struct):
    """Tracks for each client whether a stream is open, or when the client was last present."""

    clock: Clock
    _streams: Counter[str] = msgspec.field(default_factory=Counter[str])
    """The number of open streams of each client that has one."""
    _last_seen: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """When each client was present, by the clock; the one that is away longest comes first."""
    _left: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set for a moment each time that a client closes a stream."""

    @contextmanager
    def listening(self, client: str) -> Generator[None]:
        """Count a stream of the client as open for the duration of the context."""
        self._streams[client] += 1
        try:
            yield
        finally:
            self._streams[client] -= 1
            if not self._streams[client]:
                del self._streams[client]
            self.seen(client)
            self._left.set()  # wakes those who wait now; who waits later waits for the next one
            self._left.clear()

    def seen(self, client: str) -> None:
        """Note that the client is present."""
        self._last_seen.pop(client, None)  # the newest come last
        self._last_seen[client] = self.clock.now()
        if len(self._last_seen) > MAX_REMEMBERED:
            longest_away = next(iter(self._last_seen))
            del self._last_seen[longest_away]

    def is_listening(self, client: str) -> bool:
        """Whether a stream of the client is open."""
        return client in self._streams

    def seconds_away(self, client: str) -> float:
        """The seconds since the client was present; infinite if it never was."""
        if self.is_listening(client):
            return 0.0
        return self.clock.now() - self._last_seen.get(client, -math.inf)

    async def until_away(self, client: str, seconds: float) -> None:
        """Wait until the client has been away for this long without a break."""
        while (remaining := seconds - self.seconds_away(client)) > 0:
            if self.is_listening(client):
                await self._left.wait()
            else:  # it may come back and leave meanwhile, so look again afterwards
                await self.clock.sleep(remaining)


@dataclass(slots=True, eq=False)
class PendingApproval(OpenQuestion):
    """A question about a call of a request."""

    request: requests.PromptRequest

    def for_others(self) -> JsonObject:
        """What clients read that are not asked."""
        call = self.question.call
        return {
            "id": self.id,
            "tool": call.name,
            "call_id": call.id,
            "preview": self.question.preview,
        }


class ClientApprover(Struct):
    """An `Approver` that asks only the client of the current request; the others see the question.

    If the client is away for AWAY_SECONDS, or was never connected, the answer is no.
    """

    log: updates.UpdateLog
    presence: Presence
    request: requests.PromptRequest | None = None
    """The running request, which the shared session sets; None between requests."""
    _pending: dict[str, PendingApproval] = msgspec.field(default_factory=dict[str, PendingApproval])

    def pending(self, client: str) -> list[PendingApproval]:
        """The questions that this client must answer."""
        return [p for p in self._pending.values() if p.request.client == client]

    def open_for_others(self, client: str) -> list[PendingApproval]:
        """The questions that wait for another client."""
        return [p for p in self._pending.values() if p.request.client != client]

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The client's answer."""
        if self.request is None:  # a command of the conversation asks, not a call of the model
            return Approval(Choice.DENY, reason=NOT_LISTENING, unanswered=True)
        pending = PendingApproval(request, self.request)
        self._pending[pending.id] = pending
        self.log.publish(
            updates.UpdateKind.APPROVAL_NEEDED,
            pending.to_json(),
            request=self.request.id,
            addressee=self.request.client,
        )
        self.log.publish(
            updates.UpdateKind.APPROVAL_OPEN,
            pending.for_others(),
            request=self.request.id,
            author=self.request.client,
        )
        decision, reason = CANCELLED, ""  # unless there is an answer before the task is cancelled
        try:
            approval = await self._wait(pending)
            decision = approval.choice.value
            was_answered = pending.answer.done()  # otherwise the reason is the client's absence
            reason = approval.feedback or ("" if was_answered else approval.reason)
        finally:
            del self._pending[pending.id]
            data = {"id": pending.id, "tool": request.call.name}
            data |= {"decision": decision, "reason": reason}
            self.log.publish(updates.UpdateKind.APPROVAL_DECIDED, data, request=pending.request.id)
        return approval

    def decide(self, id: str, client: str, approval: Approval) -> None:
        """Set a client's answer; raises SharedSessionError for a closed or another's question."""
        pending = self._pending.get(id)
        if pending is None or pending.answer.done():
            raise question_is_over()
        if pending.request.client != client:
            message = "Only the client that sent the request may answer; see X-Client-ID."
            raise updates.SharedSessionError(updates.RefusalCode.NOT_YOUR_REQUEST, message)
        pending.decide(approval)

    async def _wait(self, pending: PendingApproval) -> Approval:
        """The answer, or a denial once the client has been away for too long."""
        away = asyncio.create_task(self.presence.until_away(pending.request.client, AWAY_SECONDS))
        try:
            await asyncio.wait({pending.answer, away}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(away)
        if pending.answer.done():
            return pending.answer.result()
        return Approval(Choice.DENY, reason=NOT_LISTENING, unanswered=True)
