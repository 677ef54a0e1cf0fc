"""What a box is."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from shepherd.tools.program import Program, Startable
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refusal

Report = Callable[[Refusal], None]
"""Takes what a box refused or undid, as far as it knows for sure."""


def ignore_refusals(_refusal: Refusal) -> None:
    """A `Report` for callers that don't want any."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One box: why it can't be used, and what would help."""

    name: str
    ok: bool
    reason: str = ""
    advice: str = ""


class Box(Protocol):
    """One way to confine a program."""

    name: str

    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> AbstractContextManager[Startable]:
        """What starts `program` inside, once; leave the context when it has ended.

        Raises ToolError if the profile can't be enforced. `report` is called while the context is
        left. Nothing that was started inside is alive afterwards.
        """
        ...
