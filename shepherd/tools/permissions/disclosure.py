"""Telling a model what a call gave: a private key is told only after a question of its own."""

from dataclasses import replace

from shepherd.config.choices import ApproveMode
from shepherd.messages import ToolCall
from shepherd.tools.base import ToolResult
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Approver, Choice
from shepherd.tools.permissions.content import holds_private_key

HELD_BACK = "the call has run, but its result holds a private key and is held back"
_CAUSE = "the result holds a private key"
_PREVIEW = "The call has run, and its result holds a private key. Yes tells it to the model."


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
    said = f"{approval.reason}: {approval.feedback}" if approval.feedback else approval.reason
    return replace(result, content=f"Error: {HELD_BACK} ({said})", ok=False)


def harmless_error(error: Exception) -> str:
    """The text of an error without what may not be told."""
    text = str(error)
    return HELD_BACK if holds_private_key(text) else text
