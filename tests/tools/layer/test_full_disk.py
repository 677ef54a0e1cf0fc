"""A full disk, in the layer or below it, changes nothing by halves."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.layer.running import BOX
from tests.tools.sandbox.boxes import need

AT_THE_COMMIT = """
import sys
from pathlib import Path
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from tests.undo.project import view

root, place = Path(sys.argv[1]), Path(sys.argv[2])
(root / "kept").write_text("old")
(root / "removed").write_text("old")
layer = Layer(place, root)
for number in range(20):
    (layer.upper / str(number)).write_bytes(bytes(100_000))
(layer.upper / "kept").write_bytes(bytes(100_000))
before = view(root)
try:
    commit(layer, read_effect(layer).changes)
except OSError as error:
    print(error.strerror)
assert view(root) == before
layer.drop()
(root / "more").write_bytes(bytes(500_000))
"""

WHILE_IT_RUNS = """
import sys
from pathlib import Path
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from tests.tools.layer.running import BOX, run_layered
from tests.undo.project import view

place, root = Path(sys.argv[1]) / "layers", Path(sys.argv[2])
root.mkdir()
(root / "kept").write_text("old")
before = view(root)
layer = Layer(place, root)
line = "( head -c 3000000 /dev/zero > large || rm kept ) 2>&1 | grep -o 'No space left on device'"
print(run_layered(BOX, root, layer, line))
assert view(root) == before
layer.drop()
assert view(root) == before
assert not [*place.glob("layer-*")]
"""


def on_small_disk(program: str, disk: Path, other: Path) -> str:
    """What a program prints; its arguments are a directory with little space, and another one."""
    disk.mkdir()
    script = 'mount -t tmpfs -o size=1m none "$1" && exec "$3" -c "$4" "$1" "$2"'
    words = ["unshare", "-Urm", "sh", "-c", script, "sh", disk, other, sys.executable, program]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unshare" in ended.stderr or "mount:" in ended.stderr:
        pytest.skip(f"no file system can be mounted here: {ended.stderr}")
    assert ended.stderr == ""
    return ended.stdout.strip()


def test_a_full_disk_at_the_commit_changes_nothing(tmp_path: Path) -> None:
    text = on_small_disk(AT_THE_COMMIT, tmp_path / "root", tmp_path / "layers")

    assert text == "No space left on device"


def test_a_full_disk_of_layers_fails_the_command_alone(tmp_path: Path) -> None:
    need(BOX)

    text = on_small_disk(WHILE_IT_RUNS, tmp_path / "disk", tmp_path / "root")

    assert text == "No space left on device"
