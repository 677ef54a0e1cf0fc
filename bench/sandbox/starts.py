"""The duration of `true` in each sandbox, also with a layer, in alternating rounds."""

import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, sleep

from msgspec.structs import replace

from bench.sandbox.running import run
from bench.table import markdown, milliseconds
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.profile import Profile

_PLAIN = "plain"
_FOLDERS, _FILES_IN_EACH = 100, 100
_PAUSE = 0.1  # a model takes longer between two commands


def measure(boxes: Sequence[Box], rounds: int) -> dict[str, list[float]]:
    """Seconds of each start by the sandbox's name, including setup and cleanup."""
    durations: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as base:
        root = Path(base).resolve() / "root"
        root.mkdir()
        (root / ".git").mkdir()
        (root / ".env").write_text("KEY=1", "utf-8")
        for folder in range(_FOLDERS):
            (root / str(folder)).mkdir()
            for name in range(_FILES_IN_EACH):
                (root / str(folder) / str(name)).write_text("text", "utf-8")
        profile = Profile(root, root, Path.home(), (root / ".git",), (root / ".env",))
        program = Program(["true"], root, dict(os.environ))
        for _round in range(rounds + 1):  # the first warms up
            for box in (None, *boxes):
                sleep(_PAUSE)
                started = perf_counter()
                run(box, profile, program)
                name = box.name if box else _PLAIN
                durations.setdefault(name, []).append(perf_counter() - started)
                if box is not None and box.takes_layers:
                    sleep(_PAUSE)
                    started = perf_counter()
                    _run_layered(box, profile, Path(base) / "layers")
                    took = perf_counter() - started
                    durations.setdefault(f"{name} with a layer", []).append(took)
    return {name: values[1:] for name, values in durations.items()}


def _run_layered(box: Box, profile: Profile, place: Path) -> None:
    """Write a file in a layer, and commit it."""
    layer = Layer(place, profile.root)
    try:
        line = Program(["touch", "made"], profile.root, dict(os.environ))
        run(box, replace(profile, layer=layer.base), line)
        commit(layer, read_effect(layer).changes)
    finally:
        layer.drop()


def table(durations: dict[str, list[float]]) -> str:
    """Median and 95th percentile of each, and the difference to a plain start."""
    plain = _percentiles(durations[_PLAIN])
    rows: list[list[str]] = []
    for name, values in durations.items():
        own = _percentiles(values)
        added = [value - base for value, base in zip(own, plain, strict=True)]
        rows.append([name, *map(milliseconds, (*own, *added))])
    return markdown(["box", "p50", "p95", "added p50", "added p95"], rows)


def _percentiles(values: list[float]) -> list[float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return [cuts[49], cuts[94]]
