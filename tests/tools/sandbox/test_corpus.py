"""The attacks on permissions, run in the boxes without any rule in their way."""

import json
import os
import sys
from pathlib import Path

import pytest

from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.profile import Profile
from tests.attacks.corpus import SECRET, Place, load, names
from tests.examples import few, some
from tests.tools.sandbox.boxes import BOXES, run_in

_RUNNER = """
import concurrent.futures, json, subprocess, sys
def run(order):
    line, cwd, environment = order
    words = line if isinstance(line, list) else ["bash", "-c", line]
    try:
        ended = subprocess.run(words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=int(sys.argv[2]))
        return ended.stdout.decode("utf-8", "replace")
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return repr(error)
with concurrent.futures.ThreadPoolExecutor(4) as pool:  # some wait until the time is over
    for text in pool.map(run, json.load(open(sys.argv[1]))):
        print(text)
print("## all ran")
"""
_BATCH = 60
_SECONDS = few(5, 2)
"""For each attack; some wait for a server that they never reach."""


@pytest.mark.long
@pytest.mark.parametrize("box", BOXES, ids=lambda box: box.name)
def test_no_attack_harms_what_is_outside(box: Box, tmp_path: Path) -> None:
    """All of them in a long run; else some, and others in each box."""
    attacks = some([attack for name in names() for attack in load(name)], box.name, _BATCH)
    for number in range(0, len(attacks), _BATCH):
        base = tmp_path / str(number)
        root = base / "root"
        root.mkdir(parents=True)
        batch = attacks[number : number + _BATCH]
        places = [attack.prepare(base / str(n)) for n, attack in enumerate(batch)]
        before = _states(places)
        orders = [
            (attack.command(place), str(place.work), _environment(place, attack.environment))
            for attack, place in zip(batch, places, strict=True)
        ]
        (root / "orders").write_text(json.dumps(orders), "utf-8")

        ended = run_in(box, _profile(root, places), [*_PYTHON, str(root / "orders"), str(_SECONDS)])

        assert "## all ran" in ended.out, ended
        assert SECRET not in ended.out + ended.err
        assert _states(places) == before


_PYTHON = (os.path.realpath(sys.executable), "-I", "-S", "-c", _RUNNER)


def _environment(place: Place, more: dict[str, str]) -> dict[str, str]:
    filled = {name: place.fill(value) for name, value in more.items()}
    return {**os.environ, "HOME": str(place.home), **filled}


def _profile(root: Path, places: list[Place]) -> Profile:
    works = tuple(place.work for place in places)
    hidden = tuple(path for work in works for path in _secrets(work))
    return Profile(root, root, root.parent / "home", (), hidden, writable=works)


def _secrets(top: Path) -> list[Path]:
    files = [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if SECRET.encode() in path.read_bytes()]


def _states(places: list[Place]) -> list[tuple[dict[str, bytes], list[Path]]]:
    """What is outside of each working directory, and which files in it tell the secret."""
    return [
        (
            {
                str(path): path.read_bytes()
                for top in (place.outside, place.home)
                for path in top.rglob("*")
                if path.is_file()
            },
            sorted(_secrets(place.work)),
        )
        for place in places
    ]
