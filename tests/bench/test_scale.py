"""The simulation of many replicas agrees with the measured ones, and with itself."""

import json
from xml.etree import ElementTree as ET

import pytest

from bench.scale import measure
from bench.scale.__main__ import cell, check, simulated, table
from bench.scale.plot import draw
from bench.scale.routers import ROUTERS

MEASURED = json.loads(measure.FILE.read_text())


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_hit_rates_are_as_measured(replicas: int) -> None:
    run = MEASURED[str(replicas)]
    figures = simulated(MEASURED["1"], replicas)
    assert figures.prompt == pytest.approx(run["prompt"], rel=0.01)
    assert figures.hit_rate == pytest.approx(run["cached"] / run["prompt"], rel=0.15)


def test_a_seed_repeats_a_cell_and_routers_differ() -> None:
    figures = {name: cell(name, 10, 1500, seed=3) for name in ROUTERS}
    assert cell("ours", 10, 1500, seed=3) == figures["ours"]
    assert len({figure.prompt for figure in figures.values()}) == 1  # all play the same
    assert figures["ours"].hit_rate > figures["random"].hit_rate + 0.05
    assert figures["ours"].computed < figures["least busy"].computed
    assert all(first >= 0 for figure in figures.values() for first in figure.first)


def test_one_replica_is_the_same_for_all_routers() -> None:
    rates = {cell(name, 1, 300, seed=1).hit_rate for name in ROUTERS}
    assert len(rates) == 1


def test_the_tables_and_the_plot() -> None:
    figures = {(name, n): cell(name, n, 100, seed=1) for name in ROUTERS for n in (1, 2)}
    assert table(figures).count("\n") == 1 + len(figures)
    assert check().count("\n") == 4
    picture = draw({key: figure.hit_rate for key, figure in figures.items()}, ROUTERS)
    assert len(ET.fromstring(picture).findall("{*}polyline")) == len(ROUTERS)
