"""Which models are picked for a machine, and how fast they are said to be."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from shepherd.backends.base import Memory
from shepherd.backends.llamacpp.native import picking, speed
from shepherd.backends.llamacpp.native.devices import Device, DeviceKind
from shepherd.backends.llamacpp.native.picking import (
    FAST,
    GOOD_CONTEXT,
    LEAST_CONTEXT,
    Machine,
    Pick,
)
from shepherd.backends.llamacpp.native.speed import Speed
from shepherd.catalog.local_models import LocalModel, find_local_model, local_models
from tests.backends.llamacpp.support import settings

GIB = 2**30
SPEED = Speed(ram=40e9, vram=1000e9, batches=1e11)


def machine(ram: float, vram: float = 0, quickness: Speed = SPEED) -> Machine:
    """A machine with so many free GiB, and a GPU if that has some."""
    memory = Memory(int(ram * GIB), int(vram * GIB))
    gpu = Device("CUDA0", "NVIDIA GeForce RTX 4090", DeviceKind.GPU, memory.vram, memory.vram)
    return Machine(memory, [gpu] if vram else [], quickness)


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
    slow = structs.replace(SPEED, ram=1e6)
    every = picked(machine(64, quickness=slow))
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
def test_speed_grows_with_the_memorys(model: LocalModel, times: float) -> None:
    quant = next(iter(model.quants))
    place = machine(400)
    fit = picking.make_plan(picking.expected_header(model, quant), settings(), place).fit
    faster = structs.replace(SPEED, ram=SPEED.ram * times, batches=SPEED.batches * times)
    for predict in (speed.writing_speed, speed.reading_speed):
        assert predict(fit, faster) == pytest.approx(predict(fit, SPEED) * times)
    assert speed.writing_speed(fit, SPEED, 0) >= speed.writing_speed(fit, SPEED, 100_000)


def test_a_dense_model_is_read_once_for_each_token() -> None:
    model = table("llama-3.1-8b")
    place = machine(100)
    fit = picking.make_plan(picking.expected_header(model, "Q8_0"), settings(), place).fit
    weights = fit.demand.sizes.weights - fit.demand.sizes.embedding
    assert speed.writing_speed(fit, SPEED, 0) == pytest.approx(SPEED.ram / weights)


def test_a_mixture_of_experts_reads_what_it_uses() -> None:
    model = table("qwen3-coder-30b")
    place = machine(100)
    fit = picking.make_plan(picking.expected_header(model, "Q4_K_M"), settings(), place).fit
    used = SPEED.ram / speed.writing_speed(fit, SPEED, 0)
    assert used == pytest.approx(model.size("Q4_K_M") * model.active / model.parameters, rel=0.15)


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


def test_the_processor_is_measured() -> None:
    one, many = speed.processor_speed()
    assert one > 0
    assert many > 0
