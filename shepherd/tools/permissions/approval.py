"""Requests for approval, the answers, and the objects that answer them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from shepherd.messages import ToolCall
from shepherd.tools.base import Access, AccessKind
from shepherd.tools.permissions.content import holds_private_key
from shepherd.tools.permissions.rules import Decision, Rule

DENIED_BY_USER = "denied by the user"
NO_TERMINAL = "denied: approval needed and no terminal to ask"

HELD_BACK = "the call has run, but its result holds a private key and is held back"


class Choice(StrEnum):
    """The possible answers."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    DENY = "deny"


class Approval(Struct, frozen=True):
    """An answer.

    `feedback` is the user's message to the model, added to the result. `reason` is the text after
    `Error: ` in the result of a denied call. `by` names the client that answered, "" for the user
    of this process. `values` are those that the user typed for the request's fields.
    """

    choice: Choice
    feedback: str = ""
    reason: str = DENIED_BY_USER
    by: str = ""
    values: tuple[str, ...] = ()


class ApprovalRequest(Struct, frozen=True):
    """A call that needs approval.

    `preview` is a diff or the command. `session` and `always` are the rules that these answers
    would add; if they are empty, the answer holds for this call only. `cause` is the rule or
    another reason for the request. `caller` names the model that made the call if it is not the
    model of the conversation. `sandbox` describes a refusal of the sandbox and the rights that an
    approval adds, or says that the call runs outside of it; else it is "". `fields` name values for
    the user to type, which go with an approval; a frontend that can't read them leaves them out.
    `choices` are the texts that each field accepts, none for any text.
    """

    call: ToolCall
    accesses: tuple[Access, ...]
    preview: str = ""
    session: tuple[Rule, ...] = ()
    always: tuple[Rule, ...] = ()
    cause: str = ""
    caller: str = ""
    sandbox: str = ""
    fields: tuple[str, ...] = ()
    choices: tuple[tuple[str, ...], ...] = ()

    @property
    def is_plan(self) -> bool:
        """Whether it asks the user to accept a plan."""
        return any(access.kind is AccessKind.PLAN for access in self.accesses)

    def rules_for(self, choice: Choice) -> tuple[Rule, ...]:
        """The rules that `choice` would add."""
        return {Choice.SESSION: self.session, Choice.ALWAYS: self.always}.get(choice, ())


class Approver(Protocol):
    """Answers requests without a time limit; it is cancelled with the call."""

    async def ask(self, request: ApprovalRequest) -> Approval: ...


class DenyingApprover:
    """Denies everything, because there is no user to ask."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Deny, with the reason for the model."""
        return Approval(Choice.DENY, reason=NO_TERMINAL)


class CallObserver(Protocol):
    """Notes how it is decided on a call; a call can have several decisions."""

    def ruled(self, decision: Decision, cause: str) -> None:
        """Note a decision of the rules; one that asks is followed by an answer."""
        ...

    def answered(self, approval: Approval) -> None:
        """Note the answer to a request."""
        ...

    def started(self) -> None:
        """Note that the call runs."""
        ...


class ScriptedApprover:
    """Returns prepared answers in order and records the requests; then denies."""

    def __init__(self, answers: Iterable[Approval | Choice] = ()) -> None:
        self._answers = [a if isinstance(a, Approval) else Approval(a) for a in answers]
        self.requests: list[ApprovalRequest] = []

    def script(self, *answers: Approval | Choice) -> None:
        """Prepare these answers in place of the others."""
        self._answers = [a if isinstance(a, Approval) else Approval(a) for a in answers]

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The next prepared answer."""
        self.requests.append(request)
        return self._answers.pop(0) if self._answers else Approval(Choice.DENY)


def harmless_error(error: Exception) -> str:
    """The text of an error, without a private key."""
    text = str(error)
    return HELD_BACK if holds_private_key(text) else text
