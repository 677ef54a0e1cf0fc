"""The interface of boxes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from shepherd.tools.program import Program, Startable
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refusal

Report = Callable[[Refusal], None]
"""Receives each refusal or reverted change of a box that is certain."""


def ignore_refusals(_refusal: Refusal) -> None:
    """A `Report` that drops everything."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The test of one box: the reason if it can't be used, and advice."""

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
        """A startable `program` inside the box; leave the context after the program has ended.

        Raises ToolError if the profile can't be enforced. `report` is called when the context ends.
        No process from inside the box is alive afterwards.
        """
        ...
