"""What the live area shows of running calls, and the model's plan as a checklist."""

from collections.abc import Iterator

from rich.text import Text

from shepherd.cli.terminal.paint import BLANK_LINE, UNICODE, Glyphs, Piece
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.events import Notice, PlanStep, PlanUpdate, StepStatus, Topic
from shepherd.tools.plan import ASCII_SIGNS, MAX_STEP

MAX_LINE = 400
MAX_TAIL_LINES = 5


class LiveCalls:
    """Keeps the last line of each sub-agent, and the last lines of each command, by call."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._lines: dict[str, str] = {}
        self._tails: dict[str, list[str]] = {}

    def take(self, notice: Notice) -> None:
        """Keep a notice of the topic TASK or OUTPUT."""
        if notice.topic == Topic.TASK:
            self._lines[notice.id] = one_line(notice.text, MAX_LINE)
        else:
            lines = sanitize(notice.text).rstrip("\n").split("\n")
            self._tails[notice.id] = [one_line(line, MAX_LINE) for line in lines[-MAX_TAIL_LINES:]]

    def end(self, call_id: str) -> None:
        """Forget a call that has its result."""
        self._lines.pop(call_id, None)
        self._tails.pop(call_id, None)

    def clear(self) -> None:
        """Forget all calls."""
        self._lines.clear()
        self._tails.clear()

    def pieces(self) -> list[Piece]:
        """The lines, each cut to the width of the screen."""
        return [
            Piece(Text(line, style="quiet", no_wrap=True, overflow="ellipsis"))
            for line in self._texts()
        ]

    def _texts(self) -> Iterator[str]:
        for tail in self._tails.values():
            for number, line in enumerate(tail):
                yield f"  {self._glyphs.result if number == 0 else ' '} {line}"
        for line in self._lines.values():
            yield f"  {self._glyphs.dot} {line}"


_LOOKS = {
    StepStatus.PENDING: ("☐", "quiet"),
    StepStatus.IN_PROGRESS: ("▸", "bold"),
    StepStatus.COMPLETED: ("☑", "quiet"),
}
"""The sign of a state, and the style of its step."""


class PlanView:
    """Shows the last plan in the live area; `finish` returns it for the permanent output."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._unicode = glyphs is UNICODE
        self._steps: tuple[PlanStep, ...] = ()

    def take(self, plan: PlanUpdate) -> list[Piece]:
        """Take a plan; returns a proposal, which is shown at once."""
        if plan.proposal:
            return [BLANK_LINE, Piece(Text(sanitize(plan.proposal)))]
        self._steps = plan.steps or self._steps
        return []

    def live(self) -> list[Piece]:
        """The checklist so far."""
        return [*self._pieces()]

    def finish(self) -> list[Piece]:
        """The checklist at the end of a turn; the view is empty afterwards."""
        pieces = [BLANK_LINE, *self._pieces()] if self._steps else []
        self._steps = ()
        return pieces

    def _pieces(self) -> Iterator[Piece]:
        for step in self._steps:
            sign, style = _LOOKS[step.status]
            if not self._unicode:
                sign = ASCII_SIGNS[step.status]
            text = f"  {sign} {one_line(step.step, MAX_STEP)}"
            yield Piece(Text(text, style=style))
