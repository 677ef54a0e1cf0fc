"""`python -m bench.scale`: routers over 1 to 1,000 replicas, simulated."""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

from bench.scale import measure, workload
from bench.scale.checked import check
from bench.scale.flat import simulate
from bench.scale.plot import draw
from bench.scale.routers import ROUTERS
from bench.scale.simulation import Engine, Figures
from bench.scale.workload import recorded_sessions, steady_load
from bench.table import machine, markdown, milliseconds

REPLICAS = (1, 10, 100, 1_000)
CONVERSATIONS = 50_000
LOAD = 0.5
"""The share of the slots that would be busy if each prompt were computed only once."""

PICTURE = Path(__file__).parents[2] / "docs" / "scale.svg"
_HEADER = (
    "router",
    "replicas",
    "requests",
    "hit rate",
    "±",
    "first token p50",
    "p99",
    "computed per served",
)


def main(arguments: Sequence[str]) -> int:
    """Simulate, check, and draw."""
    options = _options(arguments)
    if options.record:
        workload.record()
    if options.measure:
        measure.measure((1, 2, 3))
    print(f"{machine()}\n\n{check()}\n", flush=True)
    started = perf_counter()
    figures: dict[tuple[str, int], Figures] = {}
    for replicas in options.replicas:
        for name in options.routers:
            same = figures.get((options.routers[0], replicas)) if replicas == 1 else None
            found = same or cell(name, replicas, options.conversations, options.seed)
            figures[name, replicas] = found
            print(table({(name, replicas): found}).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(figures))
    print(f"\n{perf_counter() - started:.0f} s for {len(figures)} cells")
    if options.plot:
        rates = {key: value.hit_rate for key, value in figures.items()}
        PICTURE.write_text(draw(rates, list(ROUTERS)))
    return 0


def cell(name: str, replicas: int, conversations: int, seed: int) -> Figures:
    """One router over so many replicas."""
    engine = Engine()
    between = _seconds_of_conversation(engine) / (LOAD * replicas * engine.slots)
    return simulate(steady_load(conversations, between, seed), engine, name, replicas)


def _seconds_of_conversation(engine: Engine) -> float:
    """The mean time in slots, if only what is new is computed."""
    _, recorded = recorded_sessions()
    steps = [step for session in recorded for step in session]
    seconds = sum(step.answer / engine.decode + step.new / engine.prefill for step in steps)
    return seconds / len(recorded)


def table(figures: Mapping[tuple[str, int], Figures]) -> str:
    """A row for each cell; ± is twice the standard error of the batches after the first one."""
    return markdown(
        _HEADER, [_row(name, number, value) for (name, number), value in figures.items()]
    )


def _row(name: str, replicas: int, figures: Figures) -> list[str]:
    p50, p99 = figures.quantiles(0.5, 0.99)
    warm = figures.batches[1:]
    error = 2 * statistics.stdev(warm) / len(warm) ** 0.5
    counts = [f"{replicas:,}", f"{len(figures.first):,}", f"{figures.hit_rate:.1%}"]
    times = [milliseconds(p50), milliseconds(p99)]
    return [name, *counts, f"{error:.1%}", *times, f"{figures.computed:.3f}"]


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.scale")
    parser.add_argument("--replicas", type=int, nargs="+", default=REPLICAS)
    parser.add_argument("--routers", nargs="+", choices=ROUTERS, default=list(ROUTERS))
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS, help="of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", action="store_true", help="draw docs/scale.svg")
    parser.add_argument("--record", action="store_true", help="write sessions.json anew")
    parser.add_argument("--measure", action="store_true", help="run one to three real replicas")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
