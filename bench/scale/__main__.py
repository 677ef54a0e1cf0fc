"""`python -m bench.scale`: routers over 1 to 1,000 replicas, simulated."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.scale import measure, workload
from bench.scale.plot import draw
from bench.scale.routers import ROUTERS, make_router
from bench.scale.simulation import Engine, Figures, Simulation
from bench.scale.workload import Conversation, Step, Workload
from bench.table import machine, markdown, milliseconds

REPLICAS = (1, 10, 100, 1_000)
POPULATION = 1_000_000
"""The conversations out of which each cell plays a sample."""

LOAD = 0.6
"""The share of the slots that would be busy without any cache hit in decoding alone."""

_PREFILL_RATIO = 10
PICTURE = Path(__file__).parents[2] / "docs" / "scale.svg"
_HEADER = ("router", "replicas", "hit rate", "first token p50", "p99", "computed per served")


def main(arguments: Sequence[str]) -> int:
    """Simulate, check, and draw."""
    options = _options(arguments)
    if options.record:
        workload.record()
    if options.measure:
        measure.measure((2, 3))
    print(f"{machine()}\n\n{check()}\n")
    started = perf_counter()
    figures = {
        (name, replicas): cell(name, replicas, options.requests, options.seed)
        for replicas in options.replicas
        for name in ROUTERS
    }
    print(table(figures))
    print(f"\n{perf_counter() - started:.0f} s for {len(figures)} cells")
    if options.plot:
        PICTURE.write_text(draw({key: value.hit_rate for key, value in figures.items()}, ROUTERS))
    return 0


def cell(name: str, replicas: int, requests: int, seed: int) -> Figures:
    """One router over so many replicas, with at least 40 requests for each."""
    drawn = Workload(seed)
    engine = Engine()
    count = max(requests, 40 * replicas) / drawn.mean_steps
    numbers = range(0, POPULATION, max(1, int(POPULATION / count)))
    conversations = [drawn.conversation(number) for number in numbers]
    steps = [step for conversation in conversations for step in conversation.steps]
    seconds = sum(step.answer / engine.decode + step.new / engine.prefill for step in steps)
    rate = LOAD * replicas * engine.slots * len(conversations) / seconds
    simulation = Simulation(engine, replicas, make_router(name, replicas), seed)
    simulation.play(conversations, drawn, rate)
    return simulation.figures


def check() -> str:
    """The measured runs beside the same load, simulated with the speed of the one server."""
    measured: dict[str, dict[str, Any]] = json.loads(measure.FILE.read_text())
    rows: list[list[str]] = []
    for replicas in (1, 2, 3):
        run = measured[str(replicas)]
        figures = simulated(measured["1"], replicas)
        real = run["cached"] / run["prompt"]
        off = figures.hit_rate / real - 1
        times = [milliseconds(run["first_p50"]), milliseconds(figures.quantile(0.5))]
        rows.append(
            [str(replicas), f"{real:.1%}", f"{figures.hit_rate:.1%}", f"{off:+.1%}", *times]
        )
    header = ["replicas", "hit rate", "simulated", "off by", "first token p50", "simulated"]
    return markdown(header, rows)


def simulated(one: Mapping[str, Any], replicas: int) -> Figures:
    """The load of `measure`, with the speed that makes the one server as fast as it was.

    A token of a prompt takes a tenth of the time of one of an answer.
    """
    prompts: list[int] = one["turns"]
    steps = [Step(prompts[0], measure.ANSWER, user=True)]
    for before, after in pairwise(prompts):
        steps.append(Step(after - before - measure.ANSWER, measure.ANSWER, user=True))
    conversations = [Conversation(n, 0, 1, steps) for n in range(measure.CONVERSATIONS)]
    requests = measure.CONVERSATIONS * len(steps)
    work = measure.ANSWER * requests + (one["prompt"] - one["cached"]) / _PREFILL_RATIO
    decode = work / (Engine().slots * one["seconds"])
    engine = Engine(prefill=_PREFILL_RATIO * decode, decode=decode)
    simulation = Simulation(engine, replicas, make_router(ROUTERS[-1], replicas))
    simulation.play_at_once(conversations)
    return simulation.figures


def table(figures: Mapping[tuple[str, int], Figures]) -> str:
    """A row for each cell."""
    rows = [
        [
            name,
            f"{replicas:,}",
            f"{value.hit_rate:.1%}",
            milliseconds(value.quantile(0.5)),
            milliseconds(value.quantile(0.99)),
            f"{value.computed:.3f}",
        ]
        for (name, replicas), value in figures.items()
    ]
    return markdown(_HEADER, rows)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.scale")
    parser.add_argument("--replicas", type=int, nargs="+", default=REPLICAS)
    parser.add_argument("--requests", type=int, default=20_000, help="of each cell, at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", action="store_true", help="draw docs/scale.svg")
    parser.add_argument("--record", action="store_true", help="write sessions.json anew")
    parser.add_argument("--measure", action="store_true", help="run two and three real replicas")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
