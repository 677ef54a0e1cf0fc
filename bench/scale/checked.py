"""The measured runs beside the same load, simulated with the speeds of one replica alone."""

import json
import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from bench.scale import measure
from bench.scale.measure import ANSWER, CONVERSATIONS, SERVER
from bench.scale.simulation import Engine, Figures, Simulation
from bench.scale.workload import Step, as_lists, load_at_once
from bench.table import markdown, milliseconds

_HEADER = ("replicas", "", "measured", "simulated", "off by")


def check() -> str:
    """Three rows for each number of replicas."""
    measured: dict[str, dict[str, Any]] = json.loads(measure.FILE.read_text())
    rows: list[list[str]] = []
    for name, run in measured.items():
        if name == SERVER:
            continue
        figures = simulated(measured, int(name))
        rate = run["cached"] / run["prompt"]
        off = f"{figures.hit_rate / rate - 1:+.1%}"
        rows.append([name, "hit rate", f"{rate:.1%}", f"{figures.hit_rate:.1%}", off])
        [median] = figures.quantiles(0.5)
        mean = statistics.mean(figures.first)
        rows.append(_times(name, "first token p50", run["first_p50"], median))
        rows.append(_times(name, "first token, mean", run["first_mean"], mean))
    return markdown(_HEADER, rows)


def _times(name: str, what: str, real: float, simulated: float) -> list[str]:
    off = f"{simulated / real - 1:+.0%}"
    return [name, what, milliseconds(real), milliseconds(simulated), off]


def simulated(measured: Mapping[str, Mapping[str, Any]], replicas: int) -> Figures:
    """The load of `measure` on replicas that share the cores.

    The speeds come from the runs of one replica, and of one server without Ray.
    """
    prompts: list[int] = measured["1"]["turns"]
    steps = [Step(prompts[0], ANSWER, user=True)]
    for before, after in pairwise(prompts):
        steps.append(Step(after - before - ANSWER, ANSWER, user=True))
    load = as_lists(load_at_once(CONVERSATIONS, steps))
    engine = calibrated(measured["1"], measured[SERVER], steps)
    return Simulation(load, engine, "ours", replicas).play()


def calibrated(
    one: Mapping[str, Any], server: Mapping[str, Any], steps: list[Step], cores: int = 2
) -> Engine:
    """The speeds of a replica, from first tokens of a conversation alone, and from CPU times.

    Without Ray, what is left of a first token is the server's own work on a request. A replica
    does the same work on its core; the rest is that of Ray's programs in front of it.
    """
    prefill, before = _first_tokens(one, steps)
    _, reading = _first_tokens(server, steps)
    reading = min(reading, before)
    before -= reading
    requests = CONVERSATIONS * len(steps)
    computed = prefill * (one["prompt"] - one["cached"]) + reading * requests
    decode = (one["replica_cpu"] - computed) / (requests * ANSWER)
    beside = max(0.0, one["other_cpu"] / requests - before)
    return Engine(
        prefill=1 / prefill,
        decode=1 / decode,
        cores=cores,
        before=before,
        beside=beside,
        reading=reading,
    )


def _first_tokens(run: Mapping[str, Any], steps: list[Step]) -> tuple[float, float]:
    """Seconds per new token of a prompt, and those of a request besides."""
    first, *later = run["alone_first"]
    new = statistics.mean(step.new for step in steps[1:])
    prefill = (first - statistics.median(later)) / (steps[0].new - new)
    return prefill, max(0.0, first - prefill * steps[0].new)
