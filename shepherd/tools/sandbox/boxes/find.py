"""Which box works here, tried for real."""

import sys
from dataclasses import dataclass

from shepherd.tools.sandbox.boxes.box import Attempt, Box


@dataclass(frozen=True, slots=True)
class Finding:
    """The strongest box that holds, None if no box does, and all that were tried."""

    box: Box | None
    tried: tuple[Attempt, ...]


def find_box() -> Finding:
    """Try each box in turn; takes up to a second where boxes fail."""
    from shepherd.tools.sandbox.boxes.probe import probe
    from shepherd.tools.sandbox.helper.groups import remove_stale_groups
    from shepherd.tools.sandbox.view.private import remove_stale

    remove_stale()
    remove_stale_groups()
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
        from shepherd.tools.sandbox.boxes.macos import SandboxExec

        return (SandboxExec(),)
    return ()
