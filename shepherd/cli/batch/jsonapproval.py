"""Asks the program of a JSON lines conversation before a tool runs."""

from collections.abc import Callable

from shepherd.cli.batch.jsoninput import DecisionInput, InputError
from shepherd.conversation.shared.protocol import SharedSessionError
from shepherd.conversation.shared.questions import OpenQuestion
from shepherd.messages import JsonObject
from shepherd.tools.permissions.approval import NO_TERMINAL, Approval, ApprovalRequest, Choice


class JsonApprover:
    """Writes a question and waits for its `decision`; denies as long as `asks` is False."""

    def __init__(self, write: Callable[[JsonObject], bool]) -> None:
        self.asks = False
        self._write = write
        self._open: dict[str, OpenQuestion] = {}

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The program's answer."""
        if not self.asks:
            return Approval(Choice.DENY, reason=NO_TERMINAL)
        question = OpenQuestion(request)
        self._open[question.id] = question
        try:
            if not self._write({"type": "approval", **question.to_json()}):
                return Approval(Choice.DENY, reason=NO_TERMINAL)
            return await question.answer
        finally:
            del self._open[question.id]

    def decide(self, decision: DecisionInput) -> None:
        """Set an answer; raises InputError if no such question waits, or lacks this choice."""
        question = self._open.get(decision.id)
        try:
            if question is None:
                raise InputError("No such question waits for an answer.")
            question.decide(decision.approval)
        except SharedSessionError as error:
            raise InputError(str(error)) from error

    def close(self) -> None:
        """Deny all questions: no answer can follow."""
        self.asks = False
        for question in self._open.values():
            if not question.answer.done():
                question.decide(Approval(Choice.DENY, reason=NO_TERMINAL))
