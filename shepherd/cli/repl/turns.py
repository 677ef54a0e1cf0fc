"""What a turn shows and asks beside its answer: calls, own commands, questions and modes."""

import asyncio
from itertools import pairwise

from msgspec import Struct, structs
from rich.text import Text

from shepherd import errors, events, messages
from shepherd.cli.approval.question import Answer, approval_question, choice_of
from shepherd.cli.render.renderer import EXPAND_HINT, Renderer
from shepherd.cli.render.status import Status
from shepherd.cli.render.surface import Surface
from shepherd.cli.render.tool_view import counted
from shepherd.cli.terminal import paint, secrets
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.config.section import ApproveMode
from shepherd.conversation.own_commands import ALONE, SIGN, OwnCommand, OwnCommands
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.text import reveal
from shepherd.tools.tool import ToolResult
from shepherd.turn import ToolExecutor


class NotSentError(errors.ShepherdError):
    """An unsent message, which belongs back into the prompt; "" if already reported."""


class RenderingExecutor(Struct):
    """Runs calls by `inner` and reports their start and their changes to the renderer."""

    inner: ToolExecutor
    renderer: Renderer

    async def run(
        self,
        call: messages.ToolCall,
        output_bytes: int | None = None,
        on_event: events.EventCallback = events.ignore_events,
    ) -> ToolResult:
        """Run a call, which the renderer shows at its beginning; its change is shown at its end."""
        self.renderer.tool_started(call)
        result = await self.inner.run(call, output_bytes, on_event)
        self.renderer.tool_finished(call, result)
        return result


MAX_LINES = 40
"""The last lines of an output that stay on the screen."""


def is_own_command(text: str) -> bool:
    """Whether the user's text is a command; text after a space is a message."""
    return text.startswith(SIGN) and bool(text.lstrip(SIGN).strip())


async def run_own_command(
    text: str, commands: OwnCommands, surface: Surface, renderer: Renderer
) -> None:
    """Run `!LINE`, whose output the model reads with the next prompt, or `!!LINE`.

    Raises ShepherdError.
    """
    line = text.removeprefix(ALONE).removeprefix(SIGN).strip()
    renderer.user(secrets.redact(text))
    renderer.activity.start(f"running {one_line(secrets.redact(line), 40)}")
    try:
        command = await commands.run(line, renderer, shared=not text.startswith(ALONE))
    except asyncio.CancelledError:
        if commands.last is not None:  # it had begun, and has some output
            _show_own(commands.last, surface, renderer)
        raise
    finally:
        renderer.end_own_output()
    _show_own(command, surface, renderer)


def _show_own(command: OwnCommand, surface: Surface, renderer: Renderer) -> None:
    """Show the last lines of a command's output, and how it ended if it failed."""
    lines = sanitize(command.output).split("\n") if command.output else []  # not [""]
    visible = lines[-MAX_LINES:]
    if len(lines) > MAX_LINES:
        earlier = counted(len(lines) - MAX_LINES, "earlier line")
        hint = f"; {EXPAND_HINT}" if surface.has_live_area else ""
        visible.insert(0, f"({earlier}{hint})")
    if visible:
        text = Text("\n".join(f"  {line}" for line in visible))
        surface.show(paint.Piece(text, soft_wrap=True))
    if not command.ok:
        renderer.notice(f"({command.end})", "warn")
    elif not visible:
        renderer.notice("(no output)")
    renderer.results.add(f"{SIGN}{one_line(secrets.redact(command.line), 200)}", command.output)


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
        """Show the call and the question; returns the answer, and what the user typed for it."""
        async with self._one_at_a_time:
            self._renderer.show_call(request.call)
            was_active = bool(self._renderer.activity.label)  # not at the end of a job
            self._renderer.activity.stop()
            try:
                # in a thread, as the preview may be long
                question = await asyncio.to_thread(approval_question, request)
                if request.is_plan:  # its event has shown it
                    question = structs.replace(question, lines=())
                answer, parts = await self._surface.ask(question), None
                while answer is Answer.SOME:
                    parts = await self._surface.ask_parts(question)
                    if parts is not None:
                        break
                    answer = await self._surface.ask(question)
            finally:  # the question is gone from the screen; what it was about stays
                self._renderer.preview(request.call, request.preview)
            fields = request.fields if answer.allows else ()
            values = [await self._surface.ask_text(f"{reveal(name)}: ") for name in fields]
            feedback = ""
            if answer is Answer.TELL:
                feedback = (await self._surface.ask_text("tell the model: ")).strip()
            outcome = _outcome(answer, request, feedback)
            if parts is not None:
                outcome = f"kept {len(parts)} of {counted(len(request.parts), 'part')}"
            self._renderer.notice(outcome)
            if was_active:  # also without a yes, until the result comes
                self._renderer.activity.start("running")
            return Approval(choice_of(answer), feedback, values=(*values,), parts=parts)


def _outcome(answer: Answer, request: ApprovalRequest, feedback: str) -> str:
    """What an answer did: `denied`, `allowed once`, or the rules that it added."""
    if answer is Answer.TELL:  # a no with a message, also to a plan
        return f"denied: {feedback}"
    choice = choice_of(answer)
    if request.is_plan:
        return "keeps planning" if choice is Choice.DENY else "plan accepted"
    if choice is Choice.DENY:
        return "denied"
    rules = request.rules_for(choice)
    return "; ".join(reveal(rule.describe()) for rule in rules) or "allowed once"


_CYCLE = (
    ApproveMode.ASK,
    ApproveMode.EDITS,
    ApproveMode.REVIEW,
    ApproveMode.PLAN,
    ApproveMode.AUTO,
)
_NEXT: dict[ApproveMode, ApproveMode] = dict(pairwise(_CYCLE))


def next_mode(mode: ApproveMode) -> ApproveMode:
    """From `ask` to `edits`, `plan` and `auto`, and back; from any other mode to `ask`."""
    return _NEXT.get(mode, ApproveMode.ASK)


def note_mode(policy: PermissionPolicy, status: Status) -> None:
    """Put the mode into the status line; call it once the sandbox was tried."""
    must_ask = policy.mode is ApproveMode.AUTO and not policy.has_sandbox
    status.approve = "auto (asks: no sandbox)" if must_ask else policy.mode.value
