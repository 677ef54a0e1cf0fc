"""No attempt gets out of a box."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.tools.sandbox.boxes.box import Box
from tests.tools.sandbox.attempts import PRELUDE, attempts
from tests.tools.sandbox.boxes import BOXES, run_in
from tests.tools.sandbox.world import World

_EACH = """n=0
for line; do
    echo "## $((n++))"
    timeout -k 1 10 bash -c "$line" </dev/null
done 2>&1
"""
_ATTEMPTS = attempts()


@pytest.fixture(params=BOXES, ids=lambda box: box.name)
def box(request: pytest.FixtureRequest) -> Box:
    """Each box that works here."""
    return request.param


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """What an escape would change."""
    world = World(tmp_path)
    yield world
    world.close()


@pytest.mark.parametrize("kind", _ATTEMPTS)
def test_nothing_gets_out(box: Box, world: World, kind: str) -> None:
    lines = _ATTEMPTS[kind]
    runner = [os.path.realpath(sys.executable), "-I", "-S", "-c", PRELUDE]
    if kind != "programs":
        runner = ["bash", "-c", _EACH, "bash"]

    ended = run_in(box, world.profile, [*runner, *lines], world.environment())

    assert f"## {len(lines) - 1}" in ended.out, ended
    assert not world.damage(ended.out + ended.err), ended.out


def test_there_are_enough_attempts() -> None:
    assert sum(map(len, _ATTEMPTS.values())) >= 200


@pytest.mark.parametrize("kind", ["reads", "sockets", "survivors"])
def test_without_a_box_the_damage_is_seen(world: World, kind: str) -> None:
    each = _EACH.replace(" 10 ", " 3 ")  # some get an answer only at their end
    command = ["bash", "-c", each, "bash", *_ATTEMPTS[kind][:4]]

    ended = subprocess.run(
        command,
        cwd=world.root,
        env=world.environment(),
        stdout=subprocess.PIPE if kind != "survivors" else subprocess.DEVNULL,
        check=False,
    )

    assert world.damage((ended.stdout or b"").decode("utf-8", "replace"))
