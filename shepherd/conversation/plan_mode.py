"""The notes that tell the model about plan mode."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shepherd.config.choices import ApproveMode
from shepherd.messages import ToolSpec
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.plan import PRESENT_PLAN

BEGIN = (
    "Plan mode is on: change nothing, and run nothing that could change anything; such calls are "
    "refused. Look at what you need, then {end}."
)
WITH_TOOL = f"call {PRESENT_PLAN} with the plan"
WITHOUT_TOOL = "answer with a plan"
END = "Plan mode is off: you may make changes."


@dataclass(slots=True)
class PlanNotes:
    """A `Preface`: the note on the mode that goes with a prompt; `tools` are the model's."""

    policy: PermissionPolicy
    tools: Callable[[], Iterable[ToolSpec]]
    _was_on: bool = False

    async def __call__(self) -> str:
        """The note, "" if the model needs none."""
        was_on, self._was_on = self._was_on, self.policy.mode is ApproveMode.PLAN
        if not self._was_on:
            return END if was_on else ""
        has_tool = any(tool.name == PRESENT_PLAN for tool in self.tools())
        return BEGIN.format(end=WITH_TOOL if has_tool else WITHOUT_TOOL)
