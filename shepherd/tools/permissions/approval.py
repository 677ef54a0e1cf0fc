"""Asking a human, or whoever answers in their place."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from shepherd.messages import ToolCall
from shepherd.tools.base import Access
from shepherd.tools.permissions.rules import Rule

DENIED_BY_USER = "denied by the user"
NO_TERMINAL = "denied: approval needed and no terminal to ask"


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
