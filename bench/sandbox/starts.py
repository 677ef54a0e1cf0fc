"""The duration of a command in each sandbox, also with a layer and its commit, in turns."""

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter, sleep

from msgspec.structs import replace

from bench.sandbox.running import run
from bench.table import markdown, milliseconds
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.merge import reconcile
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.profile import Profile

_PLAIN = "plain"
_IN_EACH_FOLDER = 100
_PAUSE = 0.1  # a model takes longer between two commands


def measure(boxes: Sequence[Box], rounds: int, files: int) -> dict[str, list[float]]:
    """Seconds of each command by the sandbox's name, including setup and cleanup.

    The working directory has so many files.
    """
    durations: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as base:
        root = Path(base).resolve() / "root"
        _make_tree(root, files)
        profile = Profile(root, root, Path.home(), (root / ".git",), (root / ".env",))
        works = _works(boxes, profile, Path(base) / "layers")
        for _round in range(rounds + 1):  # the first warms up
            for name, work in works.items():
                sleep(_PAUSE)
                started = perf_counter()
                work()
                durations.setdefault(name, []).append(perf_counter() - started)
    return {name: values[1:] for name, values in durations.items()}


def _make_tree(root: Path, files: int) -> None:
    (root / ".git").mkdir(parents=True)
    (root / ".env").write_text("KEY=1", "utf-8")
    for number in range(files):
        folder = root / str(number // _IN_EACH_FOLDER)
        folder.mkdir(exist_ok=True)
        (folder / str(number)).write_text("text", "utf-8")


def _works(boxes: Sequence[Box], profile: Profile, layers: Path) -> dict[str, Callable[[], object]]:
    """What is measured, by its name."""
    idle = Program(["true"], profile.root, dict(os.environ))
    works: dict[str, Callable[[], object]] = {_PLAIN: partial(run, None, profile, idle)}
    for box in boxes:
        works[box.name] = partial(run, box, profile, idle)
        if box.takes_layers:
            numbers = map(str, count())
            works[f"{box.name}, a layer"] = partial(_run_layered, box, profile, layers, idle)
            works[f"{box.name}, a layer, a file replaced"] = partial(
                _replace_file, box, profile, layers, numbers.__next__
            )
    return works


def _replace_file(box: Box, profile: Profile, layers: Path, content: Callable[[], str]) -> None:
    line = ["sh", "-c", f"echo {content()} > 0/0"]
    _run_layered(box, profile, layers, Program(line, profile.root, dict(os.environ)))


def _run_layered(box: Box, profile: Profile, layers: Path, program: Program) -> None:
    """Run a program in a layer, and commit what it has changed."""
    layer = Layer(layers, profile.root)
    try:
        run(box, replace(profile, layer=layer.base), program)
        changes, _merged = reconcile(layer, read_effect(layer).changes)
        if changes:
            commit(layer, changes)
    finally:
        layer.drop()


def table(measured: dict[int, dict[str, list[float]]]) -> str:
    """Median and 95th percentile of each, for each number of files."""
    names = list(dict.fromkeys(name for durations in measured.values() for name in durations))
    rows = [
        [name, *(_percentiles(durations[name]) for durations in measured.values())]
        for name in names
    ]
    return markdown(["", *(f"{files:,} files" for files in measured)], rows)


def _percentiles(values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"{cuts[49] * 1000:.1f}, {milliseconds(cuts[94])}"
