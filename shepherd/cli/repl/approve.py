"""Asking the user before a tool runs."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shepherd.cli.repl.clean import clean, one_line
from shepherd.cli.repl.render import Renderer
from shepherd.cli.repl.surface import Surface
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.rules import Rule

ONCE, SESSION, ALWAYS, FEEDBACK, NO = "y", "s", "a", "f", "n"
FEEDBACK_LABEL = "tell the model: "
MAX_ASKER = 80
MAX_SANDBOX = 300


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


def question(request: ApprovalRequest) -> RenderableType:
    """What is asked, with what each key does."""
    head = Text(headline(request), style="warn")
    if request.cause:
        head.append(f"  ({clean(request.cause)})", style="quiet")
    meanings = {
        ONCE: ["yes, once"],
        SESSION: ["yes, and from now on", *map(_rule_text, request.session)],
        ALWAYS: ["yes, and store", *map(_rule_text, request.always)],
        FEEDBACK: ["no, and tell the model what to do instead"],
        NO: ["no (Esc: no, and stop the turn)"],
    }
    rows = Table.grid(padding=(0, 2, 0, 0))
    for key in offered_keys(request):
        first, *rules = meanings[key]
        separator = ": " if len(rules) == 1 else ":\n" if rules else ""
        rows.add_row(Text(f"  {key}", style="bold"), Text(first + separator + "\n".join(rules)))
    return Group(Text(), head, rows)


def headline(request: ApprovalRequest) -> str:
    """What is asked, in a line: the call, and what the user must know about the sandbox."""
    asker = f" for {one_line(request.asker, MAX_ASKER)}" if request.asker else ""
    sandbox = f" {one_line(request.sandbox, MAX_SANDBOX)}" if request.sandbox else ""
    return f"Allow {clean(request.call.name)}{asker}?{sandbox}"


def _rules_text(rules: tuple[Rule, ...]) -> str:
    return "; ".join(map(_rule_text, rules))


def _rule_text(rule: Rule) -> str:
    return clean(rule.describe())
