"""Changing what runs without asking."""

import asyncio
from dataclasses import dataclass, field

from shepherd.cli.render.status import Status
from shepherd.cli.render.surface import Surface
from shepherd.tools.permissions.policy import ApproveMode, PermissionPolicy
from shepherd.tools.sandbox.sandbox import Sandbox

MODE_TEXT = {
    ApproveMode.ASK: "What no rule allows is asked about.",
    ApproveMode.EDITS: "Changes to files in the working directory run without asking.",
    ApproveMode.AUTO: "Changes to files in the working directory and commands in the sandbox run "
    "without asking.",
    ApproveMode.ALL: "Everything that no rule denies runs without asking.",
    ApproveMode.NONE: "What would be asked about is refused.",
}
_NEXT = {ApproveMode.ASK: ApproveMode.EDITS, ApproveMode.EDITS: ApproveMode.AUTO}


@dataclass(slots=True)
class ApproveSwitch:
    """The mode of approval as the terminal shows and changes it."""

    policy: PermissionPolicy
    sandbox: Sandbox
    status: Status
    surface: Surface
    _turning: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def set(self, mode: ApproveMode) -> str:
        """Change the mode; what it means here, in a sentence or two."""
        self.policy.mode = mode
        self.status.approve = mode.value
        text = MODE_TEXT[mode]
        if mode is ApproveMode.AUTO:
            problem = await self.sandbox.problem_of_auto()
            self.policy.has_sandbox = not problem
            if problem and self.policy.mode is mode:
                self.status.approve = "auto (asks: no sandbox)"
                text = problem
        self.surface.refresh()
        return text

    def turn(self) -> None:
        """From `ask` to `edits`, to `auto`, and back; from any other mode to `ask`."""
        task = asyncio.ensure_future(self._turn(_NEXT.get(self.policy.mode, ApproveMode.ASK)))
        self._turning.add(task)
        task.add_done_callback(self._turning.discard)

    async def _turn(self, mode: ApproveMode) -> None:
        text = await self.set(mode)
        self.surface.hint(f"approve: {mode.value}. {text}")
