"""Models in memory: loaded once, shared, kept while busy, and unloaded to make room."""

import asyncio
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.base import Memory
from shepherd.backends.tenant import Tenant, serving_tenant
from shepherd.errors import BusyError, ModelLoadError
from shepherd.server.models import ModelState
from shepherd.server.pool.loaded import (
    MAX_IDLE_CONNECTIONS,
    LoadedModels,
    OpenableModel,
    PoolLimits,
)
from tests.patience import PATIENCE
from tests.server.pool.doubles import Closable, Machine


def ram(size: int) -> Callable[[], Memory]:
    """A machine without GPUs."""
    return lambda: Memory(size)


def gpu(vram: int) -> Callable[[], Memory]:
    """A machine with a GPU of this size and plenty of other memory."""
    return lambda: Memory(100, vram)


async def use(models: LoadedModels, model: OpenableModel, keep_alive: float | None = None) -> None:
    async with models.lease(model, keep_alive) as backend:
        assert backend.info.id == model.key


async def test_requests_that_wait_share_one_load() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits())
    model = machine.model("a")
    await asyncio.gather(*[use(models, model) for _ in range(5)])
    await use(models, model)
    assert machine.opened == ["a"]
    await models.aclose()
    assert machine.taken == {}


async def test_the_least_recently_used_idle_model_makes_room() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits(memory=ram(3)))
    a, b, c, d = (machine.model(name) for name in "abcd")
    for model in (a, b, c, a):
        await use(models, model)
    await use(models, d)
    assert sorted(machine.taken) == ["a", "c", "d"]
    async with models.lease(c):
        await use(models, b)
        assert sorted(machine.taken) == ["b", "c", "d"]
    await models.aclose()


async def test_idle_models_make_room_on_a_gpu() -> None:
    """Those that take nothing there stay, also if they were used longer ago."""
    machine, models = Machine(), LoadedModels(PoolLimits(memory=gpu(4)))
    on_cpu, first, second = machine.model("cpu"), *(machine.model(n, vram=2) for n in "ab")
    for model in (on_cpu, first, second, machine.model("c", vram=3)):
        await use(models, model)
    assert sorted(machine.taken) == ["c", "cpu"]
    assert machine.most_vram <= 4
    await models.aclose()


async def test_a_busy_model_keeps_its_place_on_a_gpu() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits(memory=gpu(4), patience=0.02))
    async with models.lease(machine.model("a", vram=3)) as busy:
        with pytest.raises(BusyError, match="no room for another"):
            await use(models, machine.model("b", vram=2))
        await use(models, machine.model("cpu"))
        await use(models, machine.model("small", vram=1))
        assert busy.alive
    await use(models, machine.model("b", vram=2))
    assert "a" not in machine.taken
    await models.aclose()


async def test_a_model_that_is_larger_than_the_gpus_is_refused() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits(memory=gpu(4)))
    await use(models, machine.model("a", vram=4))
    with pytest.raises(ModelLoadError, match=r"on the GPUs.*gpu_layers"):
        await use(models, machine.model("big", vram=5))
    assert [*machine.taken] == ["a"]
    await models.aclose()


async def test_a_busy_model_is_waited_for() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits(models=1))
    async with models.lease(machine.model("a")) as first:
        waiting = asyncio.create_task(use(models, machine.model("b")))
        await asyncio.sleep(0.05)
        assert first.alive
        slot = models.slot("b")
        assert slot is not None
        assert slot.state is ModelState.LOADING
    await waiting
    assert machine.opened == ["a", "b"]
    await models.aclose()


async def test_a_model_without_room_is_refused_in_time() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits(models=1, patience=0.02))
    async with models.lease(machine.model("a")):
        with pytest.raises(BusyError, match="no room for another"):
            await use(models, machine.model("b"))
    await use(models, machine.model("b"))
    await models.aclose()


async def test_a_model_that_never_fits_unloads_no_other() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits(memory=ram(4)))
    await use(models, machine.model("a"))
    with pytest.raises(ModelLoadError, match=r"server\.memory_mib"):
        await use(models, machine.model("big", 5))
    assert [*machine.taken] == ["a"]
    await use(models, machine.model("essential", 5, essential=True))
    assert [*machine.taken] == ["essential"]
    await models.aclose()


async def test_too_many_waiting_requests_are_refused() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits(waiting=2))
    machine.gate.clear()
    waiting = [asyncio.create_task(use(models, machine.model("a"))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="Too many requests"):
        await use(models, machine.model("a"))
    with serving_tenant(Tenant("another")):
        waiting.append(asyncio.create_task(use(models, machine.model("a"))))
        await asyncio.sleep(0)
    machine.gate.set()
    await asyncio.gather(*waiting)
    await models.aclose()


async def test_a_failed_load_is_told_to_all_and_tried_again() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits())
    machine.fails.add("a")
    model = machine.model("a")
    results = await asyncio.gather(*[use(models, model) for _ in range(3)], return_exceptions=True)
    assert [str(result) for result in results] == ["a is damaged"] * 3
    machine.fails.clear()
    await use(models, model)
    assert machine.opened == ["a", "a"]
    await models.aclose()


async def test_a_dead_model_is_loaded_again() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits())
    model = machine.model("a")
    async with models.lease(model) as backend:
        assert isinstance(backend, Closable)
    backend.dead = True
    async with models.lease(model) as again:
        assert again is not backend
    assert backend.closed
    await models.aclose()


@pytest.mark.parametrize(("keep_alive", "stays"), [(0, False), (-1, True), (None, True)])
async def test_keep_alive_of_a_request(keep_alive: float | None, *, stays: bool) -> None:
    machine, models = Machine(), LoadedModels(PoolLimits())
    model = machine.model("a", keep_alive=100)
    keep = float("inf") if keep_alive == -1 else keep_alive
    await use(models, model, keep)
    await asyncio.sleep(0.02)
    slot = models.slot("a")
    assert (slot is not None) == stays
    if slot is not None:
        assert (slot.expires is None) == (keep_alive == -1)
    await models.aclose()


async def test_an_idle_model_expires_and_a_busy_one_does_not() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits())
    model = machine.model("a", keep_alive=0.01)
    async with models.lease(model) as backend:
        await asyncio.sleep(0.05)
        assert backend.alive
    async with asyncio.timeout(PATIENCE):
        while machine.taken:
            await asyncio.sleep(0.005)
    assert models.slot("a") is None


async def test_unloading_by_hand() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits())
    model = machine.model("a")
    async with models.lease(model):
        with pytest.raises(BusyError, match="in use"):
            await models.unload("a")
    await models.unload("a")
    await models.unload("a")
    assert machine.taken == {}


async def test_a_model_that_takes_long_to_leave_is_waited_for() -> None:
    """Its conversations are being written; no request is refused meanwhile."""
    machine, models = Machine(), LoadedModels(PoolLimits(patience=0.02))
    model = machine.model("a", keep_alive=0)
    machine.may_close.clear()
    await use(models, model)
    waiting = [asyncio.create_task(use(models, model)) for _ in range(2)]
    await asyncio.sleep(0.06)
    assert not any(task.done() for task in waiting)
    machine.may_close.set()
    await asyncio.gather(*waiting)
    assert machine.opened == ["a", "a"]
    await models.aclose()
    assert machine.taken == {}


async def test_connections_without_requests_are_bounded() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits(memory=ram(1)))
    for number in range(MAX_IDLE_CONNECTIONS + 20):
        await use(models, machine.model(str(number), is_local=False))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(machine.taken) <= MAX_IDLE_CONNECTIONS + 1
    assert str(MAX_IDLE_CONNECTIONS + 19) in machine.taken
    await models.aclose()


async def test_closing_ends_what_loads_and_what_waits() -> None:
    machine, models = Machine(), LoadedModels(PoolLimits())
    machine.gate.clear()
    waiting = asyncio.create_task(use(models, machine.model("a")))
    await asyncio.sleep(0.02)
    await models.aclose()
    with pytest.raises(BusyError, match="stopping"):
        await waiting
    with pytest.raises(BusyError, match="stopping"):
        await use(models, machine.model("a"))
    assert machine.taken == {}


NEEDS = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 2}
VRAM = {"a": 3, "b": 0, "c": 2, "d": 1, "e": 0}


async def _random_requests(seed: int, memory: Memory, limit: int) -> Machine:
    """Leases, cancellations, failures and unloads in a random order; checks what must hold."""
    rng, machine = random.Random(seed), Machine()

    def device() -> Memory:
        return memory

    models = LoadedModels(PoolLimits(memory=device, models=limit, patience=PATIENCE))

    async def request(name: str) -> None:
        keep = rng.choice([None, None, 0.0, 0.002])
        model = machine.model(name, NEEDS[name], vram=VRAM[name], is_local=name != "e")
        async with models.lease(model, keep) as backend:
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(rng.choice([0, 0, 0.001]))
                assert isinstance(backend, Closable)
                assert not backend.closed, "a busy model was unloaded"

    async def act() -> None:
        name = rng.choice([*NEEDS])
        if rng.random() < 0.2:
            machine.fails.symmetric_difference_update({name})
        task = asyncio.create_task(request(name))
        await asyncio.sleep(rng.choice([0, 0, 0.001, 0.002]))
        if rng.random() < 0.3:
            task.cancel()
        if rng.random() < 0.2:
            with_unload = models.unload(rng.choice([*NEEDS]))
            await asyncio.gather(with_unload, return_exceptions=True)
        (result,) = await asyncio.gather(task, return_exceptions=True)
        expected = (type(None), ModelLoadError, asyncio.CancelledError)
        assert isinstance(result, expected), result

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*[act() for _ in range(25)])
    assert all(slot.leases == 0 for name in NEEDS if (slot := models.slot(name)) is not None), (
        "a lease leaked"
    )
    await models.aclose()
    return machine


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(4, 8), st.integers(3, 6), st.integers(0, 3))
def test_any_requests_keep_the_bounds(seed: int, memory: int, vram: int, limit: int) -> None:
    machine = asyncio.run(_random_requests(seed, Memory(memory, vram), limit))
    assert machine.taken == {}, "a model leaked"
    assert machine.most_taken <= memory
    assert machine.most_vram <= vram
    assert machine.most_models <= (limit or len(NEEDS))
    assert machine.most_opening <= 1
    assert all(backend.closed for backend in machine.backends)
