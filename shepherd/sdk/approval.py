"""Approval by a function of the program that uses Shepherd."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice

ApprovalAnswer: TypeAlias = bool | Choice | Approval
ApprovalCallback: TypeAlias = Callable[
    [ApprovalRequest], ApprovalAnswer | Awaitable[ApprovalAnswer]
]

NO_CALLBACK = "denied: this call needs approval, and the program has no approve callback"
DENIED = "denied by the approve callback"


class CallbackApprover:
    """Asks a callback; everything but a clear yes denies the call, as does no callback."""

    def __init__(self, callback: ApprovalCallback | None) -> None:
        self._callback = callback

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The callback's answer; an exception of the callback denies the call."""
        if self._callback is None:
            return Approval(Choice.DENY, reason=NO_CALLBACK)
        answer = self._callback(request)
        return _approval(await answer if inspect.isawaitable(answer) else answer)


def _approval(answer: object) -> Approval:
    """`answer` as an approval; a text such as "no" counts as true in Python, and must not."""
    if isinstance(answer, Approval):
        return answer
    if isinstance(answer, Choice):
        return Approval(answer, reason=DENIED)
    return Approval(Choice.ONCE if answer is True else Choice.DENY, reason=DENIED)
