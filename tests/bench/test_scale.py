"""The simulation of many replicas agrees with the measured ones, and with itself."""

import json
from xml.etree import ElementTree as ET

import pytest

from bench.scale import flat, measure
from bench.scale.__main__ import cell, table
from bench.scale.checked import check, simulated
from bench.scale.host import Host
from bench.scale.plot import draw
from bench.scale.routers import ROUTERS, Memory
from bench.scale.simulation import Engine, Simulation
from bench.scale.workload import as_lists, steady_load
from shepherd.affinity.router import ENTRY_BYTES

MEASURED = json.loads(measure.FILE.read_text())


@pytest.fixture(autouse=True)
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long to compile, and is not needed."""

    def find_spec(_: str) -> None:
        return None

    monkeypatch.setattr(flat, "find_spec", find_spec)


@pytest.mark.parametrize("replicas", ["1", "2", "3"])
def test_hit_rates_and_first_tokens_are_as_measured(replicas: str) -> None:
    run = MEASURED[replicas]
    figures = simulated(MEASURED, int(replicas))
    assert figures.prompt == pytest.approx(run["prompt"], rel=0.01)
    assert figures.hit_rate == pytest.approx(run["cached"] / run["prompt"], rel=0.15)
    if replicas != "1":  # the speeds are those of one replica
        mean = sum(figures.first) / len(figures.first)
        assert mean == pytest.approx(run["first_mean"], rel=0.15)
        assert figures.quantiles(0.5) == pytest.approx([run["first_p50"]], rel=0.15)


@pytest.mark.parametrize("memory", [Memory(), Memory(400 * ENTRY_BYTES, 0)], ids=["full", "small"])
@pytest.mark.parametrize("name", ROUTERS)
def test_flat_arrays_play_the_same_as_the_real_router(name: str, memory: Memory) -> None:
    """Every request goes to the same replica: it waits as long, and finds as much in its cache."""
    load = steady_load(60, 1.5, seed=3)
    engine = Engine(cache=60_000, memory=memory)
    real = Simulation(as_lists(load), engine, name, 7).play()
    fast = flat.simulate(load, engine, name, 7)
    assert (fast.prompt, fast.cached, fast.answer) == (real.prompt, real.cached, real.answer)
    assert fast.first == pytest.approx(real.first)
    assert 0 < real.hit_rate < 1


def test_a_seed_repeats_a_cell_and_routers_differ() -> None:
    figures = {name: cell(name, 10, 80, seed=3) for name in ROUTERS}
    assert cell("ours", 10, 80, seed=3) == figures["ours"]
    assert len({figure.prompt for figure in figures.values()}) == 1  # all play the same
    assert figures["ours"].hit_rate > figures["random"].hit_rate + 0.05
    assert figures["ours"].computed < figures["least busy"].computed
    assert all(first >= 0 for figure in figures.values() for first in figure.first)


def test_one_replica_is_the_same_for_all_routers() -> None:
    rates = {cell(name, 1, 20, seed=1).hit_rate for name in ROUTERS}
    assert len(rates) == 1


def ends(cores: float, *work: tuple[int, float]) -> list[float]:
    """When each piece of work of a replica ends, if all begin together."""
    host, moments = Host(cores), [0.0] * len(work)

    def note(number: int) -> None:
        moments[number] = host.now

    for number, (replica, seconds) in enumerate(work):
        host.work(replica, seconds, lambda number=number: note(number))
    host.run()
    return moments


def test_work_shares_the_core_of_its_replica_and_the_cores_of_its_host() -> None:
    assert ends(0, (0, 1.0), (0, 2.0)) == [1.0, 2.0]
    assert ends(2, (0, 1.0), (0, 2.0)) == pytest.approx([2.0, 3.0])
    assert ends(2, (0, 1.0), (1, 2.0)) == pytest.approx([1.0, 2.0])
    assert ends(1, (0, 1.0), (1, 2.0)) == pytest.approx([2.0, 3.0])
    assert ends(2, (0, 1.0), (1, 1.0), (2, 1.0)) == pytest.approx([1.5] * 3)


def test_the_tables_and_the_plot() -> None:
    figures = {(name, n): cell(name, n, 20, seed=1) for name in ROUTERS for n in (1, 2)}
    assert table(figures).count("\n") == 1 + len(figures)
    assert check().count("\n") == 10
    picture = draw({key: figure.hit_rate for key, figure in figures.items()}, list(ROUTERS))
    lines = ET.fromstring(picture).findall("{*}polyline[@stroke-width='2']")
    assert len(lines) == len(ROUTERS)
