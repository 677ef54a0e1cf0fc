"""The sandbox of a session: the box that works here, and the confinement of a call."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from msgspec import Struct, field

from shepherd.config.section import SandboxMode
from shepherd.tools.layer.layer import Layer
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Attempt, Box
from shepherd.tools.sandbox.boxes.macos import SandboxExec
from shepherd.tools.sandbox.boxes.probe import probe
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refusal, Refused, read_refusal
from shepherd.tools.sandbox.view.private import remove_stale


class Finding(Struct, frozen=True):
    """The strongest box that works (None if no box works), and all attempts."""

    box: Box | None
    tried: tuple[Attempt, ...]


def find_box() -> Finding:
    """The first box that passes its test; takes up to a second if boxes fail.

    Removes what sessions left behind that were killed.
    """
    remove_stale()
    tried: list[Attempt] = []
    for box in candidates():
        attempt = probe(box)
        tried.append(attempt)
        if attempt.ok:
            return Finding(box, tuple(tried))
    if not tried:
        tried.append(Attempt("none", ok=False, reason=f"there is no sandbox for {sys.platform}"))
    return Finding(None, tuple(tried))


def candidates() -> tuple[Box, ...]:
    """The boxes for this system, the strongest first."""
    if sys.platform.startswith("linux"):
        from shepherd.tools.sandbox.boxes.bubblewrap import Bubblewrap
        from shepherd.tools.sandbox.boxes.landlock import BareLandlock, Landlock

        return (Bubblewrap(), Landlock(), BareLandlock())
    if sys.platform == "darwin":
        return (SandboxExec(),)
    return ()


class Confinement(Struct, frozen=True):
    """A box with the profile of one call.

    The program does not get the `hidden_variables` of the environment.
    """

    box: Box
    profile: Profile
    hidden_variables: frozenset[str] = frozenset()
    layer: Layer | None = None
    refusals: list[Refusal] = field(default_factory=list[Refusal])

    def enter(self, program: Program) -> AbstractContextManager[Program]:
        """The `program` inside the box; raises ToolError if the box can't be created."""
        return self.box.enter(program, self.profile, self.refusals.append)

    def refusal(self, out: str, err: str, exit_code: int) -> Refusal | None:
        """The refusal of the box to a finished program; None if there is none."""
        certain = [refusal for refusal in self.refusals if refusal.kind is not Refused.LOST]
        if certain:  # the box has seen it; the output is only a guess
            return certain[0]
        return read_refusal(out, err, exit_code, self.profile)

    @property
    def losses(self) -> list[str]:
        """Texts about files of the program that were deleted with its private directories."""
        return [refusal.text for refusal in self.refusals if refusal.kind is Refused.LOST]


class Sandbox:
    """Finds the box at the first use, and records the notices that the user has read.

    `writable` and `readable` are the user's paths. `layers` are the directories in which layers may
    be made, the best first. `find` takes up to a second and is called in a thread.
    """

    def __init__(
        self,
        mode: SandboxMode = SandboxMode.AUTO,
        *,
        writable: tuple[Path, ...] = (),
        readable: tuple[Path, ...] = (),
        layers: tuple[Path, ...] = (),
        find: Callable[[], Finding] | None = None,
    ) -> None:
        self.mode = mode
        self.writable = writable
        self.readable = readable
        self.layers = layers
        self._find_box = find or _find_box_once
        nothing_tried = Finding(box=None, tried=())
        self._finding: Finding | None = nothing_tried if mode is SandboxMode.OFF else None
        self._notices: set[str] = set()  # that the user has seen

    async def find(self) -> Finding:
        """The box that works here, tried at the first call; without a box if the sandbox is off."""
        if self._finding is None:
            self._finding = await asyncio.to_thread(self._find_box)
        return self._finding

    async def missing(self) -> str:
        """A sentence on why commands run without a box; "" if they run in one."""
        finding = await self.find()
        if finding.box is not None:
            return ""
        if self.mode is SandboxMode.OFF:
            return "The sandbox is off (tools.sandbox)."
        return f"No sandbox works here: {problems(finding)}. `shepherd doctor` tells more."

    async def problem_of_auto(self) -> str:
        """Why the mode `auto` behaves like `ask` here; "" if it does not."""
        missing = await self.missing()
        return f"{missing} So `auto` asks as `ask` does." if missing else ""

    def is_new(self, notice: str) -> bool:
        """Whether this notice is new in this session."""
        is_new = notice not in self._notices
        self._notices.add(notice)
        return is_new


def problems(finding: Finding) -> str:
    """Why no box works, with advice."""
    reasons = [
        "; ".join(part for part in (f"{a.name}: {a.reason}", a.advice) if part)
        for a in finding.tried
        if not a.ok
    ]
    return "; ".join(reasons) or "there is none for this system"


_find_box_once = cache(find_box)
