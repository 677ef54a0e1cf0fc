"""An approver with prepared answers."""

from collections.abc import Iterable

from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice


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
