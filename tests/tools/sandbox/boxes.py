"""Running lines in boxes."""

import functools
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.boxes.bubblewrap import Bubblewrap
from shepherd.tools.sandbox.boxes.landlock import BareLandlock, Landlock
from shepherd.tools.sandbox.boxes.probe import capture, probe
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refusal
from tests.patience import PATIENCE

BOXES: tuple[Box, ...] = (Bubblewrap(), Landlock(), BareLandlock())
LAYERED = [box for box in BOXES if box.takes_layers]


@functools.cache
def _problem(name: str) -> str:
    return next(probe(box).reason for box in BOXES if box.name == name)


def need(box: Box) -> None:
    """Skip a test whose box does not work here; CI must have bubblewrap installed."""
    if os.environ.get("CI") and shutil.which("bwrap") is None:
        pytest.fail("CI has to install bubblewrap")
    if _problem(box.name):
        pytest.skip(f"{box.name} does not work here: {_problem(box.name)}")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what the box said about it."""

    code: int
    out: str
    err: str
    reports: tuple[Refusal, ...]


def make_profile(base: Path) -> Profile:
    """A project with a repository and a secret, in a home of its own."""
    root, home = base / "project", base / "home"
    for directory in (root / ".git" / "hooks", root / "src", home):
        directory.mkdir(parents=True, exist_ok=True)
    (root / ".git" / "config").write_text("[core]\n", "utf-8")
    (root / ".env").write_text("KEY=secret-canary\n", "utf-8")
    protected = (root / ".git", root / ".shepherd.toml")
    return Profile(root, root, home, protected, hidden=(root / ".env",))


def run_in(
    box: Box,
    profile: Profile,
    command: str | Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a shell line, or a program, to its end; skips the test where the box does not work."""
    need(box)
    argv = ["bash", "-c", command] if isinstance(command, str) else command
    reports: list[Refusal] = []
    program = Program(argv, profile.cwd, environment or dict(os.environ))
    with box.enter(program, profile, reports.append) as boxed:
        ended = capture(boxed, 4 * PATIENCE)
    return Ended(ended.code, ended.out, ended.err, tuple(reports))
