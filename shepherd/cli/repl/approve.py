"""Asking the user before a tool runs."""

from rich.text import Text

from shepherd.cli.repl.clean import clean
from shepherd.cli.repl.render import Renderer
from shepherd.cli.repl.surface import Surface
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.rules import Rule

ONCE, SESSION, ALWAYS, FEEDBACK, NO = "y", "s", "a", "f", "n"
FEEDBACK_LABEL = "tell the model: "


class TerminalApprover:
    """Shows the diff or the command and every rule that an answer would add, then waits for a key.

    Being cancelled while it waits (Esc, Ctrl+C) is a no that also ends the turn.
    """

    def __init__(self, surface: Surface, renderer: Renderer) -> None:
        self._surface = surface
        self._renderer = renderer

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The user's answer."""
        self._renderer.preview(request.call, request.preview)
        self._renderer.activity.stop()
        key = await self._surface.ask(question(request), offered_keys(request))
        match key:
            case "y":
                return self._told(Approval(Choice.ONCE), "allowed once")
            case "s":
                return self._told(Approval(Choice.SESSION), _rules_text(request.session))
            case "a":
                return self._told(Approval(Choice.ALWAYS), _rules_text(request.always))
            case "f":
                feedback = await self._surface.ask_text(FEEDBACK_LABEL)
                return self._told(Approval(Choice.DENY, feedback.strip()), f"denied: {feedback}")
            case _:
                return self._told(Approval(Choice.DENY), "denied")

    def _told(self, approval: Approval, text: str) -> Approval:
        self._renderer.notice(text)
        self._renderer.activity.start("running")
        return approval


def offered_keys(request: ApprovalRequest) -> list[str]:
    """The keys that make sense; the last is the safe one."""
    lasting = [(SESSION, request.session), (ALWAYS, request.always)]
    return [ONCE, *(key for key, rules in lasting if rules), FEEDBACK, NO]


def question(request: ApprovalRequest) -> Text:
    """What is asked, with what each key does."""
    text = Text()
    text.append(f"Allow {clean(request.call.name)}?", style="warn")
    if request.cause:
        text.append(f"  ({clean(request.cause)})", style="quiet")
    lines = [(ONCE, "yes, once")]
    if request.session:
        lines.append((SESSION, f"yes, and add: {_rules_text(request.session)}"))
    if request.always:
        lines.append((ALWAYS, f"yes, and store: {_rules_text(request.always)}"))
    lines += [(FEEDBACK, "no, and tell the model what to do instead"), (NO, "no")]
    for key, meaning in lines:
        text.append(f"\n  {key}", style="bold")
        text.append(f"  {meaning}")
    text.append("\n  Esc stops the turn", style="quiet")
    return text


def _rules_text(rules: tuple[Rule, ...]) -> str:
    return "; ".join(clean(rule.describe()) for rule in rules)
