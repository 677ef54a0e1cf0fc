"""Asks the user before a tool runs."""

import asyncio
from dataclasses import replace

from shepherd.cli.approval.question import Answer, approval_question, choice_of
from shepherd.cli.render.renderer import Renderer
from shepherd.cli.render.status import Status
from shepherd.cli.render.surface import Surface
from shepherd.config.choices import ApproveMode
from shepherd.tools.invisible import reveal
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.policy import PermissionPolicy

FEEDBACK_LABEL = "tell the model: "


class TerminalApprover:
    """Shows a call's effect and every rule that an answer would add, and waits for a choice.

    Cancelling while it waits (Esc, Ctrl+C) is a no that also ends the turn. Simultaneous questions
    wait for each other.
    """

    def __init__(self, surface: Surface, renderer: Renderer) -> None:
        self._surface = surface
        self._renderer = renderer
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The user's answer."""
        async with self._one_at_a_time:
            self._renderer.announce(request.call)
            self._renderer.activity.stop()
            try:
                question = await asyncio.to_thread(approval_question, request)
                if request.is_plan:  # its event has shown it
                    question = replace(question, lines=())
                answer = await self._surface.ask(question)
            finally:
                self._renderer.preview(request.call, request.preview)
            feedback, values = "", list[str]()
            if answer.allows:
                for field_name in request.fields:
                    values.append(await self._surface.ask_text(f"{reveal(field_name)}: "))
            if answer is Answer.TELL:
                feedback = (await self._surface.ask_text(FEEDBACK_LABEL)).strip()
            self._renderer.notice(_outcome(answer, request, feedback))
            self._renderer.activity.start("running")
            return Approval(choice_of(answer), feedback, values=(*values,))


def _outcome(answer: Answer, request: ApprovalRequest, feedback: str) -> str:
    if answer is Answer.TELL:
        return f"denied: {feedback}"
    choice = choice_of(answer)
    if request.is_plan:
        return "keeps planning" if choice is Choice.DENY else "plan accepted"
    if choice is Choice.DENY:
        return "denied"
    rules = request.rules_for(choice)
    return "; ".join(reveal(rule.describe()) for rule in rules) or "allowed once"


_NEXT = {
    ApproveMode.ASK: ApproveMode.EDITS,
    ApproveMode.EDITS: ApproveMode.PLAN,
    ApproveMode.PLAN: ApproveMode.AUTO,
}


def next_mode(mode: ApproveMode) -> ApproveMode:
    """From `ask` to `edits`, `plan` and `auto`, and back; from any other mode to `ask`."""
    return _NEXT.get(mode, ApproveMode.ASK)


def note_mode(policy: PermissionPolicy, status: Status) -> None:
    """Put the mode into the status line; call it once the sandbox was tried."""
    asks = policy.mode is ApproveMode.AUTO and not policy.has_sandbox
    status.approve = "auto (asks: no sandbox)" if asks else policy.mode.value
