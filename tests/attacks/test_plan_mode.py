"""In plan mode no attack changes a file, with and without a box, whatever the rules allow."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, parse_rule
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.shell.accesses import argv_accesses, line_accesses
from tests.attacks.corpus import Attack, Place, load, names
from tests.attacks.lines import read_lines
from tests.examples import PROFILE
from tests.tools.sandbox.boxes import BOXES, run_in

EVERYTHING = [parse_rule(f"allow {kind} *") for kind in ("shell", "network", "tool")]
SHARE = 1 if PROFILE == "long" else 40
"""Every 40th attack runs in each box, in a long run all of them."""

RUNNER = """
import json, subprocess, sys
for line, cwd, environment in json.load(open(sys.argv[1])):
    words = line if isinstance(line, list) else ["bash", "-c", line]
    try:
        subprocess.run(words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=5)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        pass
print("## all ran")
"""
PYTHON = (os.path.realpath(sys.executable), "-I", "-S", "-c", RUNNER)


def attacks() -> list[Attack]:
    return [attack for name in names() for attack in load(name)]


def lines(place: Place) -> list[str | list[str]]:
    """All lines of the corpora, except very long ones."""
    asks = [case.line for case in read_lines("asks.txt", separator=";;")]
    everything = [*asks, *(attack.command(place) for attack in attacks() if not attack.repeat)]
    return everything if PROFILE == "long" else everything[::5]


def test_without_a_box_only_programs_that_read_are_not_denied(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.work.mkdir()
    policy = PermissionPolicy(place.work, ApproveMode.PLAN, user=EVERYTHING)
    passed: list[str] = []
    for line in lines(place):
        read = line_accesses if isinstance(line, str) else argv_accesses
        accesses = read(line, place.work)  # pyright: ignore[reportArgumentType]
        if policy.decide("execute_command", accesses).decision is not Decision.DENY:
            passed.append(str(line))
    readers = ("ls", "pwd", "cat", "head", "tail", "wc", "stat", "du", "df", "which", "cmp", "cd",
               "git status", "git diff", "git log", "git show")  # fmt: skip
    parts = [part.strip() for line in passed for part in re.split(r"[;&|()]+", line)]
    assert not [part for part in parts if part and not part.startswith(readers)]
    assert not [line for line in passed if ">" in line.replace("2>/dev/null", "")]


@pytest.mark.parametrize("box", BOXES, ids=lambda box: box.name)
def test_in_a_read_only_box_no_attack_changes_a_file(box: Box, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    batch = attacks()[BOXES.index(box) :: SHARE]
    places = [attack.prepare(root / str(number)) for number, attack in enumerate(batch)]
    orders = [
        (attack.command(place), str(place.work), {**os.environ, "HOME": str(place.home)})
        for attack, place in zip(batch, places, strict=True)
    ]
    (root / "orders").write_text(json.dumps(orders), "utf-8")
    before = state(root)
    profile = Profile(root, root, tmp_path / "home", read_only=True)

    ended = run_in(box, profile, [*PYTHON, str(root / "orders")])

    assert "## all ran" in ended.out, ended
    assert state(root) == before


def state(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below `root`: mode, time of the last change, and content."""
    entries: dict[str, tuple[int, int, bytes]] = {}
    for path in root.rglob("*"):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        entries[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return entries
