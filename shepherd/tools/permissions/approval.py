"""Asking a human, or whoever answers in their place."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from shepherd.config.choices import ApproveMode
from shepherd.messages import ToolCall
from shepherd.tools.base import Access, ToolResult
from shepherd.tools.permissions.content import holds_private_key
from shepherd.tools.permissions.rules import Rule

DENIED_BY_USER = "denied by the user"
NO_TERMINAL = "denied: approval needed and no terminal to ask"

HELD_BACK = "the call has run, but its result holds a private key and is held back"
_CAUSE = "the result holds a private key"
_PREVIEW = "The call has run, and its result holds a private key. Yes tells it to the model."


class Choice(StrEnum):
    """What an approver may answer."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Approval:
    """An answer.

    `feedback` is the user's word to the model, added to the result. `reason` is what the model
    reads after `Error: ` when the answer is no.
    """

    choice: Choice
    feedback: str = ""
    reason: str = DENIED_BY_USER


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that needs a yes.

    `preview` is a diff or the command. `session` and `always` are exactly the rules that these
    answers would add; where they are empty the answer counts for this call only. `cause` is the
    rule or the reason because of which it asks. `caller` names the model whose call it is, where
    that is not the one that the user talks to. `sandbox` is what the user must know about the
    sandbox: what it refused and what a yes opens, or that the call runs outside; "" if nothing.
    """

    call: ToolCall
    accesses: tuple[Access, ...]
    preview: str = ""
    session: tuple[Rule, ...] = ()
    always: tuple[Rule, ...] = ()
    cause: str = ""
    caller: str = ""
    sandbox: str = ""

    def rules_for(self, choice: Choice) -> tuple[Rule, ...]:
        """The rules that `choice` would add."""
        return {Choice.SESSION: self.session, Choice.ALWAYS: self.always}.get(choice, ())


class Approver(Protocol):
    """Answers requests; may take as long as it likes, is cancelled with the call."""

    async def ask(self, request: ApprovalRequest) -> Approval: ...


class DenyingApprover:
    """Says no to everything: there is nobody to ask."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Deny, and tell the model why."""
        return Approval(Choice.DENY, reason=NO_TERMINAL)


class NamingApprover:
    """Asks `inner` about the calls of a model that another one asked, in its name."""

    def __init__(self, inner: Approver, caller: str) -> None:
        self._inner = inner
        self._caller = caller

    async def ask(self, request: ApprovalRequest) -> Approval:
        """What `inner` answers; the call gets an id that none of the other model's has."""
        call = replace(request.call, id=f"{self._caller}: {request.call.id}")
        return await self._inner.ask(replace(request, call=call, caller=self._caller))


class ScriptedApprover:
    """Gives prepared answers in order and keeps the requests; denies when it has none left."""

    def __init__(self, answers: Iterable[Approval | Choice] = ()) -> None:
        self._answers = [a if isinstance(a, Approval) else Approval(a) for a in answers]
        self.requests: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The next prepared answer."""
        self.requests.append(request)
        return self._answers.pop(0) if self._answers else Approval(Choice.DENY)


async def disclosed(
    call: ToolCall, result: ToolResult, mode: ApproveMode, approver: Approver
) -> ToolResult:
    """The result as the model may read it: whole, or a line that says what was held back."""
    if mode is ApproveMode.ALL or not holds_private_key(result.content):
        return result
    approval = Approval(Choice.DENY, reason="--approve none")
    if mode is not ApproveMode.NONE:
        approval = await approver.ask(ApprovalRequest(call, (), preview=_PREVIEW, cause=_CAUSE))
    if approval.choice is not Choice.DENY:
        return result
    reason_text = (
        f"{approval.reason}: {approval.feedback}" if approval.feedback else approval.reason
    )
    return replace(result, content=f"Error: {HELD_BACK} ({reason_text})", ok=False)


def harmless_error(error: Exception) -> str:
    """The text of an error without what may not be told."""
    text = str(error)
    return HELD_BACK if holds_private_key(text) else text
