"""Running a program plainly or in a box."""

import subprocess
from contextlib import AbstractContextManager, nullcontext

from shepherd.tools.program import Program
from shepherd.tools.sandbox.box import Box
from shepherd.tools.sandbox.profile import Profile

_TIMEOUT = 300.0


def run(box: Box | None, profile: Profile, program: Program) -> tuple[int, str]:
    """The exit code, and the end of what it printed."""
    entered: AbstractContextManager[Program] = nullcontext(program)
    if box is not None:
        entered = box.enter(program, profile)
    with entered as inside:
        try:
            ended = subprocess.run(
                inside.argv,
                cwd=inside.cwd,
                env=inside.environment,
                pass_fds=inside.pass_fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1, "timed out"
    return ended.returncode, ended.stdout.decode("utf-8", "replace").strip()
