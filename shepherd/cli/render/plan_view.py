"""The model's plan as a checklist."""

from collections.abc import Iterator

from rich.text import Text

from shepherd.cli.terminal.paint import BLANK_LINE, UNICODE, Glyphs, Piece
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.events import PlanStep, PlanUpdate, StepStatus
from shepherd.tools.plan import ASCII_SIGNS, MAX_STEP

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
