"""Requests for approval as forms that an MCP client shows to its user."""

from collections.abc import Awaitable, Callable
from typing import Any

from mcp import types

from shepherd.cli.approval.question import approval_question
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice

MAX_CHARACTERS = 32_768
"""Maximum length of a question; a longer one is denied, because it must be read in full."""

NO_ELICITATION = (
    "denied: approval needed, and this client can't ask its user; add a rule, or start "
    "`shepherd --approve MODE mcp serve`"
)
TOO_LONG = "denied: the question is too long for the client's form"
NO_ANSWER = "denied: the client gave no answer"
_MEANINGS = {
    Choice.ONCE: "yes, this call",
    Choice.SESSION: "yes, for this session",
    Choice.DENY: "no",
}
_FIELD = "decision"

Asker = Callable[[types.ElicitRequestFormParams], Awaitable[types.ElicitResult | None]]
"""Shows a form; None if the client can't."""


class ElicitingApprover:
    """Asks the client's user; everything but a clear yes denies the call."""

    def __init__(self, ask: Asker) -> None:
        self._ask = ask

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The user's answer. A rule for good is not offered."""
        message = question_text(request)
        if len(message) > MAX_CHARACTERS:
            return Approval(Choice.DENY, reason=TOO_LONG)
        choices = [Choice.ONCE, *([Choice.SESSION] if request.session else []), Choice.DENY]
        result = await self._ask(
            types.ElicitRequestFormParams(message=message, requested_schema=_form(choices))
        )
        if result is None:
            return Approval(Choice.DENY, reason=NO_ELICITATION)
        return _approval(result, choices)


def can_elicit(capabilities: types.ClientCapabilities | None) -> bool:
    """Whether the client shows forms; one that names no mode shows forms."""
    elicitation = capabilities.elicitation if capabilities is not None else None
    if elicitation is None:
        return False
    return elicitation.form is not None or elicitation.url is None


def question_text(request: ApprovalRequest) -> str:
    """The whole question as text, with invisible characters made visible."""
    question = approval_question(request)
    lines = ["".join(text for text, _ in line.fragments()) for line in question.lines]
    rules = [
        f"session: {rule}" for e in question.entries if e.answer == "session" for rule in e.rules
    ]
    cause = [f"because of {question.cause}"] if question.cause else []
    return "\n".join([question.title, *cause, *lines, *rules])


def _form(choices: list[Choice]) -> dict[str, Any]:
    meanings = "; ".join(f"{choice.value}: {_MEANINGS[choice]}" for choice in choices)
    field = {"type": "string", "title": "Allow it?", "description": meanings}
    return {
        "type": "object",
        "properties": {_FIELD: {**field, "enum": [choice.value for choice in choices]}},
        "required": [_FIELD],
    }


def _approval(result: types.ElicitResult, choices: list[Choice]) -> Approval:
    if result.action == "decline":
        return Approval(Choice.DENY)
    decision = (result.content or {}).get(_FIELD)
    if result.action != "accept" or decision not in [choice.value for choice in choices]:
        return Approval(Choice.DENY, reason=NO_ANSWER)
    return Approval(Choice(decision), by="MCP client")
