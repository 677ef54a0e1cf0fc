"""Runs a program plainly or in a sandbox."""

import subprocess
from contextlib import nullcontext

from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.boxes.probe import capture
from shepherd.tools.sandbox.profile import Profile

_TIMEOUT = 300.0


def run(box: Box | None, profile: Profile, program: Program) -> tuple[int, str]:
    """The exit code and the output."""
    entered = nullcontext(program) if box is None else box.enter(program, profile)
    with entered as inside:
        try:
            ended = capture(inside, _TIMEOUT)
        except subprocess.TimeoutExpired:
            return -1, "timed out"
    return ended.code, f"{ended.out}{ended.err}".strip()
