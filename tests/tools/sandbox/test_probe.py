"""The test of a box notices each way in which a box can leak."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box, Report, ignore_refusals
from shepherd.tools.sandbox.boxes.probe import probe
from shepherd.tools.sandbox.profile import Profile
from tests.tools.sandbox.boxes import BOXES, need

Change = Callable[[Profile], Profile]


@dataclass
class Leaking:
    """A box with a hole: it enforces another profile."""

    box: Box
    change: Change
    name: str = "leaking"
    takes_layers: bool = False

    @contextmanager
    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> Generator[Program]:
        with self.box.enter(program, self.change(profile), report) as startable:
            yield startable


class Open:
    """A box that confines nothing."""

    name = "open"
    takes_layers = False

    @contextmanager
    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> Generator[Program]:
        yield program


OUTSIDE = "a file outside of the working directory was written"
HOLES: dict[str, Change] = {
    OUTSIDE: lambda profile: replace(profile, writable=(profile.root.parent,)),
    "a protected file was written": lambda profile: replace(profile, protected=()),
    "a hidden file was read": lambda profile: replace(profile, hidden=()),
    "a network socket was reached": lambda profile: replace(profile, network=True),
    "an ordinary command failed": lambda profile: replace(profile, read_only=True),
}


@pytest.mark.parametrize("reason", HOLES)
@pytest.mark.parametrize("box", BOXES, ids=lambda box: box.name)
def test_each_hole_is_noticed(box: Box, reason: str) -> None:
    need(box)

    attempt = probe(Leaking(box, HOLES[reason]))

    assert not attempt.ok
    assert attempt.reason.partition(";")[0] == reason


def test_a_box_that_confines_nothing_has_all_holes() -> None:
    reason = probe(Open()).reason

    assert reason.split("; ")[:5] == [*list(HOLES)[:4], "a local socket was reached"]
