"""No attempt gets out of a box."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.shielding import is_below
from tests.tools.sandbox.attempts import PRELUDE, attempts
from tests.tools.sandbox.boxes import BOXES, run_in
from tests.tools.sandbox.world import World
from tests.undo.project import view

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
    out = _attempt_all(box, world, world.profile, kind)

    assert not world.damage(out), out


@pytest.mark.parametrize("kind", _ATTEMPTS)
def test_nothing_gets_out_of_a_layer_or_with_its_commit(
    box: Box, world: World, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not box.takes_layers:
        pytest.skip("it has no layers")
    layer = Layer(tmp_path_factory.mktemp("layers"), world.root)
    before = view(world.root)

    out = _attempt_all(box, world, replace(world.profile, layer=layer.base), kind)

    assert view(world.root) == before
    assert not world.damage(out), out
    protected = [str(path.relative_to(world.root)) for path in world.profile.protected]
    protected.append("hard_config")  # without this name, the file has one link less
    commit(layer, [c for c in read_effect(layer).changes if not is_below(c.path, protected)])
    layer.drop()
    assert not world.damage(out), out


def _attempt_all(box: Box, world: World, profile: Profile, kind: str) -> str:
    """Make all attempts of a kind; returns what they print."""
    lines = _ATTEMPTS[kind]
    runner = [os.path.realpath(sys.executable), "-I", "-S", "-c", PRELUDE]
    if kind != "programs":
        runner = ["bash", "-c", _EACH, "bash"]
    ended = run_in(box, profile, [*runner, *lines], world.environment())
    assert f"## {len(lines) - 1}" in ended.out, ended
    return ended.out + ended.err


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
