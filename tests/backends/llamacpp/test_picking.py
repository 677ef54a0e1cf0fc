"""Which models are picked for a machine, and how fast they are said to be."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from shepherd.backends.base import Memory
from shepherd.backends.llamacpp.native import picking, speed
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.devices import Device, DeviceKind
from shepherd.backends.llamacpp.native.picking import (
    FAST,
    GOOD_CONTEXT,
    LEAST_CONTEXT,
    Machine,
    Pick,
)
from shepherd.backends.llamacpp.native.speed import Costs, Speed
from shepherd.catalog.local_models import LocalModel, find_local_model, local_models
from tests.backends.llamacpp.support import settings

GIB = 2**30


def quickness(seconds: float = 1e-9, beside: float = 0.0) -> Speed:
    """A GPU of 1,000 GB/s, and a processor that takes so long for a byte of weights or cache."""
    bytes_alone = Costs(seconds / 40, seconds / 400)
    rest = Costs(beside, beside)
    return Speed(1000e9, lambda _kind: bytes_alone, lambda _head: rest, lambda: rest)


SPEED = quickness()


def machine(ram: float, vram: float = 0, speed: Speed = SPEED) -> Machine:
    """A machine with so many free GiB, and a GPU if that has some."""
    memory = Memory(int(ram * GIB), int(vram * GIB))
    gpu = Device("CUDA0", "NVIDIA GeForce RTX 4090", DeviceKind.GPU, memory.vram, memory.vram)
    return Machine(memory, [gpu] if vram else [], speed)


def picked(place: Machine) -> Sequence[Pick]:
    return picking.picks(settings(), place)


def table(name: str) -> LocalModel:
    model = find_local_model(name)
    assert model is not None
    return model


@pytest.mark.parametrize(
    ("ram", "vram"), [(1, 0), (14, 0), (120, 0), (14, 6), (30, 22), (8, 40), (200, 80)]
)
def test_what_suits_fits(ram: float, vram: float) -> None:
    place = machine(ram, vram)
    every = picked(place)
    assert {pick.model.name for pick in every} == {model.name for model in local_models()}
    suits = [pick.suits for pick in every]
    assert suits == sorted(suits, reverse=True)
    for pick in every:
        plan = pick.plan
        if plan.fits:
            assert plan.fit.memory.fits(place.memory)
            assert plan.small.memory.fits(place.memory)
            assert plan.small.context >= min(LEAST_CONTEXT, plan.fit.demand.context)
            whole, small = plan.fit, plan.small
            assert (small.layers, min(GOOD_CONTEXT, small.context)) >= (
                whole.layers,
                min(GOOD_CONTEXT, whole.context),
            )
        if pick.suits:
            assert plan.writing >= FAST


def test_more_memory_loses_no_model() -> None:
    fitting = set[str]()
    for ram in (0.5, 2, 3, 5, 11, 17, 40, 110):
        fewer, fitting = (
            fitting,
            {pick.model.name for pick in picked(machine(ram)) if pick.plan.fits},
        )
        assert fewer < fitting or ram == 0.5


def test_low_bits_only_where_no_others_fit() -> None:
    for ram in (6, 16, 32):
        place = machine(ram)
        for pick in picked(place):
            if pick.plan.fits and pick.has_few_bits:
                larger = [
                    quant for quant in pick.model.quants if not picking.FEW_BITS.search(quant)
                ]
                headers = [picking.expected_header(pick.model, quant) for quant in larger]
                assert not any(picking.make_plan(h, settings(), place).fits for h in headers)


def test_a_slow_memory_suits_nothing() -> None:
    every = picked(machine(64, speed=quickness(4e-5)))
    assert not any(pick.suits for pick in every)
    speeds = [pick.plan.writing for pick in every if pick.plan.fits]
    assert speeds == sorted(speeds, reverse=True)


def test_experts_stay_on_the_gpu_rather_than_a_huge_context() -> None:
    model = table("qwen3.6-35b-a3b")
    pick = picking.best_quant(model, settings(), machine(30, 26))
    assert not pick.plan.fit.is_divided
    assert pick.plan.fit.context >= picking.GOOD_CONTEXT


def test_a_gpu_that_is_not_known_has_no_figure_and_suits_whole_models() -> None:
    unknown = structs.replace(SPEED, vram=0)
    pick = picking.best_quant(table("qwen3-8b"), settings(), machine(30, 22, unknown))
    assert (pick.plan.writing, pick.plan.reading, pick.suits) == (0, 0, True)
    pick = picking.best_quant(table("qwen3-32b"), settings(), machine(60, 8, unknown))
    assert not pick.suits  # a part of it is on the CPU


@given(st.sampled_from(local_models()), st.floats(1.5, 20))
def test_speed_follows_the_processors(model: LocalModel, times: float) -> None:
    quant = next(iter(model.quants))
    fit = picking.make_plan(picking.expected_header(model, quant), settings(), machine(400)).fit
    slow, fast = quickness(beside=1e-9), quickness(1e-9 / times, 1e-9 / times)
    for predict in (speed.writing_speed, speed.reading_speed):
        assert predict(fit, fast) == pytest.approx(predict(fit, slow) * times)
    assert speed.writing_speed(fit, slow, 0) > speed.writing_speed(fit, slow, 100_000)


def test_a_dense_model_is_read_once_for_each_token() -> None:
    model = table("llama-3.1-8b")
    fit = picking.make_plan(picking.expected_header(model, "Q8_0"), settings(), machine(100)).fit
    weights = fit.demand.sizes.weights - fit.demand.sizes.embedding
    assert speed.writing_speed(fit, SPEED, 0) == pytest.approx(40e9 / weights)


def test_a_mixture_of_experts_reads_what_it_uses() -> None:
    model = table("qwen3-coder-30b")
    fit = picking.make_plan(picking.expected_header(model, "Q4_K_M"), settings(), machine(100)).fit
    used = 40e9 / speed.writing_speed(fit, SPEED, 0)
    assert used == pytest.approx(model.size("Q4_K_M") * model.active / model.parameters, rel=0.15)


def test_each_type_of_weights_has_its_costs() -> None:
    model, place = table("llama-3.1-8b"), machine(100)
    asked = set[int]()

    def weights(kind: int) -> Costs:
        asked.add(kind)
        return Costs(math.inf, math.inf)

    known = structs.replace(place, speed=structs.replace(SPEED, weights=weights))
    for quant in model.quants:
        plan = picking.make_plan(picking.expected_header(model, quant), settings(), known)
        assert (plan.writing, plan.reading) == (0, 0)  # what can't be measured has no figure
    assert len(asked) == len(model.quants)


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 672e9),
        ("NVIDIA GeForce RTX 4070", 504e9),
        ("NVIDIA H200", 4800e9),
        ("AMD Radeon RX 7900 XTX", 960e9),
        ("A card of tomorrow", 0),
    ],
)
def test_bandwidths_of_data_sheets(name: str, bandwidth: float) -> None:
    gpu = Device("CUDA0", name, DeviceKind.GPU, 1, 1)
    assert speed.data_sheet(gpu) == bandwidth


def test_llama_cpp_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    q8_0 = bindings().GGML_TYPE_Q8_0
    first = speed.weight_costs.__wrapped__(q8_0)
    assert 0 < first.one < 1
    assert 0 < first.many < 1
    assert 0 < speed.layer_costs.__wrapped__().one < 1
    monkeypatch.setattr(speed, "_model_seconds", None)  # no more measurements
    assert speed.weight_costs.__wrapped__(q8_0) == first


def test_without_memory_no_speed_is_measured_and_the_next_time_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(speed, "available_memory", int)
        assert math.isinf(speed.layer_costs.__wrapped__().one)
    assert not math.isinf(speed.layer_costs.__wrapped__().one)
