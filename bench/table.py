"""Tables of measurements, and a description of the machine."""

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter


def median_seconds(works: Sequence[Callable[[], object]], runs: int) -> list[float]:
    """The median duration of each of `works` in seconds, after one run that does not count.

    They take turns, so that a slow phase of the machine slows all of them down.
    """
    durations: list[list[float]] = [[] for _ in works]
    for _ in range(runs + 1):
        for work, own in zip(works, durations, strict=True):
            started = perf_counter()
            work()
            own.append(perf_counter() - started)
    return [statistics.median(own[1:]) for own in durations]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def ratio(value: float, base: float) -> str:
    return f"{value / base:.2f} ×" if base > 0 else "–"


def machine() -> str:
    """One line on processor, cores, load and Python."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f"{os.getloadavg()[0]:.1f}"
    return f"{cpu}, {cores} cores, load {load} at the start, Python {platform.python_version()}"
