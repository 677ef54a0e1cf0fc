"""The duration of `true` in each sandbox, in alternating rounds."""

import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, sleep

from bench.sandbox.running import run
from bench.table import markdown, milliseconds
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.profile import Profile

_PLAIN = "plain"
_PAUSE = 0.1  # a model takes longer between two commands


def measure(boxes: Sequence[Box], rounds: int) -> dict[str, list[float]]:
    """Seconds of each start by the sandbox's name, including setup and cleanup."""
    durations: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as base:
        root = Path(base).resolve()
        (root / ".git").mkdir()
        (root / ".env").write_text("KEY=1", "utf-8")
        profile = Profile(root, root, Path.home(), (root / ".git",), (root / ".env",))
        program = Program(["true"], root, dict(os.environ))
        for _round in range(rounds + 1):  # the first warms up
            for box in (None, *boxes):
                sleep(_PAUSE)
                started = perf_counter()
                run(box, profile, program)
                name = box.name if box else _PLAIN
                durations.setdefault(name, []).append(perf_counter() - started)
    return {name: values[1:] for name, values in durations.items()}


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
