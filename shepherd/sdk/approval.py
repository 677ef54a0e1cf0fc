"""Approval by a function of the calling program."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, cast

from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice

ApprovalAnswer: TypeAlias = bool | Choice | Approval | Mapping[str, str]
"""A mapping has a value for each of the request's `fields`, and allows the call once."""

ApprovalCallback: TypeAlias = Callable[
    [ApprovalRequest], ApprovalAnswer | Awaitable[ApprovalAnswer]
]

NO_CALLBACK = "denied: this call needs approval, and the program has no approve callback"
DENIED = "denied by the approve callback"


class CallbackApprover:
    """Asks a callback; anything but a clear yes denies the call, and so does a missing callback."""

    def __init__(self, callback: ApprovalCallback | None) -> None:
        self._callback = callback

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The callback's answer; an exception of the callback denies the call."""
        if self._callback is None:
            return Approval(Choice.DENY, reason=NO_CALLBACK)
        answer = self._callback(request)
        return _approval(await answer if inspect.isawaitable(answer) else answer, request)


def _approval(answer: object, request: ApprovalRequest) -> Approval:
    """`answer` as an approval; a text such as "no" is true in Python, but must not allow a call."""
    if isinstance(answer, Approval):
        return answer
    if isinstance(answer, Mapping) and request.fields:
        values = cast(Mapping[str, object], answer)
        texts = tuple(str(values.get(field, "")) for field in request.fields)
        return Approval(Choice.ONCE, values=texts)
    if isinstance(answer, Choice):
        return Approval(answer, reason=DENIED)
    return Approval(Choice.ONCE if answer is True else Choice.DENY, reason=DENIED)
