"""Questions to clients before a tool runs, and their form for the clients."""

import asyncio
import secrets
from dataclasses import dataclass, field

from shepherd.conversation.shared.protocol import RefusalCode, SharedSessionError
from shepherd.messages import JsonObject
from shepherd.tools.base import Access
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.rules import Rule


def _new_id() -> str:
    return f"approval_{secrets.token_hex(8)}"


def _new_answer() -> asyncio.Future[Approval]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class OpenQuestion:
    """A question without an answer so far; made on the loop that waits for it."""

    question: ApprovalRequest
    id: str = field(default_factory=_new_id, init=False)
    answer: asyncio.Future[Approval] = field(default_factory=_new_answer, init=False)

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
            "fields": [*self.question.fields],
        }

    def decide(self, approval: Approval) -> None:
        """Set the answer; the first one counts.

        Raises SharedSessionError for a second one, and for a choice that the question lacks.
        """
        if self.answer.done():
            raise question_is_over()
        choice = approval.choice
        if choice not in (Choice.ONCE, Choice.DENY) and not self.question.rules_for(choice):
            message = f"No rule can stand for '{choice}' here; answer once or deny."
            raise SharedSessionError(RefusalCode.INVALID_DECISION, message)
        self.answer.set_result(approval)


def question_is_over() -> SharedSessionError:
    """The error for an answer to a question that does not wait any more."""
    message = "No such question waits for an answer."
    return SharedSessionError(RefusalCode.APPROVAL_NOT_FOUND, message)


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
