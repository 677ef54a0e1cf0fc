"""A layer shows what a command did, and its commit gives the real files just that."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.tools.layer.change import Change, Deed, Sort
from shepherd.tools.layer.commit import commit, recover
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from tests.tools.layer.running import BOX, make_lines, run_layered
from tests.tools.sandbox.boxes import LAYERED, need
from tests.undo.project import view


def deeds(layer: Layer) -> dict[str, str]:
    """What happened to which path."""
    return {change.path: change.deed.value for change in read_effect(layer).changes}


@pytest.mark.parametrize("seed", range(24))
def test_a_commit_gives_what_the_command_alone_would_have_done(
    seed: int, tmp_path: Path, make_layer: Callable[[Path], Layer]
) -> None:
    box = LAYERED[seed % len(LAYERED)]
    need(box)
    chance = random.Random(seed)
    plain, root = tmp_path / "plain", tmp_path / "root"
    plain.mkdir()
    run = ["bash", "-c", "; ".join([*make_lines(chance), *make_lines(chance)])]
    subprocess.run(run, cwd=plain, capture_output=True, check=False)
    shutil.copytree(plain, root, symlinks=True)
    before, line = view(root), "; ".join(make_lines(chance))
    subprocess.run(["bash", "-c", line], cwd=plain, capture_output=True, check=False)

    layer = make_layer(root)
    run_layered(box, root, layer, line)
    assert view(root) == before
    effect = read_effect(layer)
    commit(layer, effect.changes)

    assert view(root) == view(plain)
    assert effect.is_empty == (view(root) == before)


def test_the_effect_tells_what_happened(
    tmp_path: Path, make_layer: Callable[[Path], Layer]
) -> None:
    need(BOX)
    root = tmp_path / "root"
    (root / "old").mkdir(parents=True)
    for name in ("old/one", "kept", "changed", "touched", "mode"):
        (root / name).write_text("1\n")
    layer = make_layer(root)
    lines = (
        *("rm -r old", "mkdir new", "echo 1 > new/two", "echo 2 >> changed", "touch touched"),
        *("chmod 700 mode", "echo 1 > temporary", "rm temporary", "mkfifo pipe", "cp kept set"),
        "chmod u+s set",
    )
    run_layered(BOX, root, layer, "; ".join(lines))

    effect = read_effect(layer)

    assert deeds(layer) == {
        "old": "deleted",
        "old/one": "deleted",
        "new": "made",
        "new/two": "made",
        "changed": "changed",
        "mode": "mode",
        "set": "made",
    }
    assert [path for path, _why in effect.left_out] == ["pipe", "set"]


@pytest.mark.parametrize("line", ["rm -r old; mkdir -p old/deep/er", "rm -r old; mv new old"])
def test_what_a_removed_directory_held_stays_deleted_below_a_new_one(
    tmp_path: Path, make_layer: Callable[[Path], Layer], line: str
) -> None:
    need(BOX)
    root = tmp_path / "root"
    (root / "old/deep/er").mkdir(parents=True)
    (root / "old/deep/er/one").write_text("1\n")
    layer = make_layer(root)
    run_layered(BOX, root, layer, f"mkdir -p new/deep/er; {line}")

    assert deeds(layer)["old/deep/er/one"] == "deleted"
    commit(layer, read_effect(layer).changes)
    assert not (root / "old/deep/er/one").exists()


def test_a_layer_of_a_living_session_stays(
    tmp_path: Path, make_layer: Callable[[Path], Layer]
) -> None:
    (tmp_path / "root").mkdir()
    layer = make_layer(tmp_path / "root")

    assert recover(tmp_path / "layers") == []
    assert layer.upper.is_dir()


def test_names_that_are_no_text_are_committed(
    tmp_path: Path, make_layer: Callable[[Path], Layer]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    name = os.fsdecode(b"\xff\n")
    layer = make_layer(root)
    (layer.upper / name).write_text("x")

    commit(layer, [Change(name, Deed.MADE, Sort.FILE, 0o644, 1)])

    assert (root / name).read_text() == "x"
