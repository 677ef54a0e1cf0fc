"""The model's plan in the terminal: a checklist in the live area, kept once at the turn's end."""

import io
from typing import Any

from shepherd.cli.approval.question import Answer, approval_question, choice_of
from shepherd.cli.render.renderer import Renderer, show_last_exchanges
from shepherd.cli.render.status import Status
from shepherd.cli.render.surface import Actions
from shepherd.cli.repl.plain import PlainSurface
from shepherd.cli.terminal.paint import Painter
from shepherd.events import Notice, PlanUpdate, ToolResult, Topic
from shepherd.messages import Message, ToolCall
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.approval import ApprovalRequest, Choice
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule
from shepherd.tools.plan import plan_of

FIRST = {"steps": [{"step": "look", "status": "in_progress"}, {"step": "fix", "status": "pending"}]}
SECOND = {
    "steps": [{"step": "look", "status": "completed"}, {"step": "fix", "status": "in_progress"}]
}


class Shown:
    """A renderer over plain output."""

    def __init__(self) -> None:
        self.target = io.StringIO()
        actions = Actions()
        surface = PlainSurface(Painter(styled=False), actions, io.StringIO(), self.target)
        self.status = Status()
        self.renderer = Renderer(surface, self.status)

    def plan(self, plan: dict[str, Any]) -> None:
        call = ToolCall("1", "update_plan", plan)
        self.renderer(call)
        self.renderer.tool_started(call)
        self.renderer(plan_of(call.arguments))
        self.renderer(ToolResult(call.id, call.name, "The user sees the plan."))

    @property
    def live(self) -> str:
        return Painter(styled=False).paint_all(self.renderer.live(), 80)


def test_the_checklist_changes_in_place_and_is_kept_once() -> None:
    shown = Shown()
    shown.plan(FIRST)
    assert "▸ look\n  ☐ fix" in shown.live
    shown.plan(SECOND)
    assert "☑ look\n  ▸ fix" in shown.live
    assert "▸ look" not in shown.live
    assert shown.target.getvalue() == ""
    shown.renderer.end_turn()
    assert shown.target.getvalue() == "\n  ☑ look\n  ▸ fix\n"
    shown.renderer.end_turn()
    assert shown.target.getvalue().count("look") == 1
    assert "look" not in shown.live


def test_a_resumed_session_shows_the_last_plan() -> None:
    shown, messages = Shown(), [Message.user("do it")]
    for number, plan in enumerate((FIRST, SECOND)):
        call = ToolCall(str(number), "update_plan", plan)
        messages += [Message.assistant("", tool_calls=(call,)), Message.tool(call, "seen")]
    show_last_exchanges([*messages, Message.assistant("done")], shown.renderer)
    text = shown.target.getvalue()
    assert text.endswith("\n  ☑ look\n  ▸ fix\n")
    assert text.count("look") == 1


def test_a_plan_can_not_control_the_terminal() -> None:
    shown = Shown()
    shown.plan({"steps": [{"step": "\x1b]0;evil\x07a\nb", "status": "pending"}]})
    shown.renderer(PlanUpdate(proposal="\x1b[2Jwipe"))
    shown.renderer.end_turn()
    assert "\x1b" not in shown.target.getvalue()
    assert "wipe" in shown.target.getvalue()


def test_another_mode_is_in_the_status_and_a_steering_message_is_the_users() -> None:
    shown = Shown()
    shown.renderer(Notice("edits", Topic.MODE))
    assert shown.status.approve == "edits"
    shown.renderer(Notice("also this", Topic.STEERING))
    assert "> also this" in shown.target.getvalue().replace("›", ">")


def test_the_question_about_a_plan_has_its_own_words() -> None:
    rule = Rule("mode", "edits", Decision.ALLOW, lifetime=Lifetime.SESSION)
    call = ToolCall("1", "present_plan", {"plan": "1. look\n2. fix"})
    accesses = (Access(AccessKind.PLAN, "plan"),)
    question = approval_question(
        ApprovalRequest(call, accesses, preview="1. look\n2. fix", session=(rule,))
    )
    assert question.title == "Carry out this plan?"
    assert "edits" in {e.answer: e.meaning for e in question.entries}[Answer.SESSION]
    assert [choice_of(e.answer) for e in question.entries] == [
        Choice.ONCE,
        Choice.SESSION,
        Choice.DENY,
        Choice.DENY,
    ]
