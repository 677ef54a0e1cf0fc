"""Asking the user before a tool runs."""

import asyncio

from shepherd.cli.approval.question import Answer, approval_question, choice_of
from shepherd.cli.render.renderer import Renderer
from shepherd.cli.render.surface import Surface
from shepherd.tools.invisible import reveal
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice

FEEDBACK_LABEL = "tell the model: "


class TerminalApprover:
    """Shows what a call would do and every rule that an answer would add, and waits for a choice.

    Being cancelled while it waits (Esc, Ctrl+C) is a no that also ends the turn. Questions that
    come at the same time wait for each other.
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
                answer = await self._surface.ask(question)
            finally:
                self._renderer.preview(request.call, request.preview)
            feedback = ""
            if answer is Answer.TELL:
                feedback = (await self._surface.ask_text(FEEDBACK_LABEL)).strip()
            self._renderer.notice(_outcome(answer, request, feedback))
            self._renderer.activity.start("running")
            return Approval(choice_of(answer), feedback)


def _outcome(answer: Answer, request: ApprovalRequest, feedback: str) -> str:
    if answer is Answer.TELL:
        return f"denied: {feedback}"
    choice = choice_of(answer)
    if choice is Choice.DENY:
        return "denied"
    rules = request.rules_for(choice)
    return "; ".join(reveal(rule.describe()) for rule in rules) or "allowed once"
