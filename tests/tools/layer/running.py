"""Lines that change files, and how they run in a layer."""

import random
from pathlib import Path

from shepherd.tools.layer.layer import Layer
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.boxes.probe import capture
from shepherd.tools.sandbox.profile import Profile
from tests.patience import PATIENCE
from tests.tools.sandbox.boxes import BOXES

BOX = next(box for box in BOXES if box.name == "landlock")
NAMES = ("a", "b", "c", "d/a", "d/b", "d/e/a", "d/e", "d", "e", "e/f", "e/f/g", "x y", "é")
MODES = ("711", "755", "700", "744")


def make_lines(chance: random.Random) -> list[str]:
    """Some commands that change files of a few names, or fail."""

    def name() -> str:
        return f"'{chance.choice(NAMES)}'"

    forms = (
        lambda: f"echo {chance.random()} > {name()}",
        lambda: f"echo {chance.random()} >> {name()}",
        lambda: f"rm -rf {name()}",
        lambda: f"mkdir -p {name()}",
        lambda: f"mv -f {name()} {name()}",
        lambda: f"ln -sfn {chance.choice(('a', './x', 'd'))} {name()}",
        lambda: f"chmod {chance.choice(MODES)} {name()}",
        lambda: f"touch {name()}",
        lambda: f"rmdir {name()}",
        lambda: f"entry={name()}; rm -rf $entry; mkdir $entry",
        lambda: f"sed -i s/0/1/ {name()}",
        lambda: f"find . -name {chance.choice('abc')} -delete",
    )
    return [chance.choice(forms)() for _ in range(chance.randint(2, 9))]


def run_layered(box: Box, root: Path, layer: Layer, line: str) -> str:
    """The output of a shell line that works in the layer."""
    home = layer.base.parent / "home"
    home.mkdir(exist_ok=True)
    profile = Profile(root=root, cwd=root, home=home, layer=layer.base)
    with box.enter(Program(["bash", "-c", line], root), profile) as program:
        return capture(program, PATIENCE).out
