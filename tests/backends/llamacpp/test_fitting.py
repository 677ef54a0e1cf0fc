"""How much of a model is loaded: on machines with GPUs of set sizes, and after a lack of memory."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.base import Concurrency
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.bindings import bindings, native_log
from shepherd.backends.llamacpp.native.devices import Device, DeviceKind, available_memory, gpus
from shepherd.backends.llamacpp.native.fitting import (
    AGENT_CONTEXTS,
    GPU_RESERVE,
    MAX_ATTEMPTS,
    MIN_CONTEXT,
    Demand,
    Fit,
    Memory,
    fit,
    fit_model,
    free_memory,
    load_fitted,
    step_below,
)
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import MemoryShortageError
from shepherd.backends.llamacpp.native.sizes import ModelSizes
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ModelLoadError
from tests.backends.llamacpp.support import PUP, settings

GIB = 1024**3
EIGHT = ModelSizes(
    layers=(230_000_000,) * 32,
    embedding=560_000_000,
    output=560_000_000,
    tied=False,
    cells=(4096,) * 32,
    states=(0,) * 32,
    trained_context=131_072,
    vocabulary=128_256,
    width=4096,
    heads=32,
    window=0,
    inner=43_008,
    head=128,
)
"""Like Llama 3.1 with 8 billion weights in Q8_0."""

WHOLE = Demand(
    sizes=EIGHT,
    layers=33,
    context=131_072,
    layers_fixed=False,
    context_fixed=False,
    sequences=1,
    settings=LlamaCppSection(flash_attention="on"),
    gpus=1,
)
RAM = 64 * GIB


def gpu(free: int) -> Device:
    return Device("CUDA0", "a GPU of set size", DeviceKind.GPU, free, free)


@pytest.mark.parametrize(
    ("gib", "layers", "context"),
    [(80, 33, 131_072), (24, 33, 114_688), (14, 33, 65_536), (11, 33, 32_768), (6, 18, 16_384)],
)
def test_what_goes_onto_a_gpu(gib: int, layers: int, context: int) -> None:
    """All of it; else less context, with a smaller cache; else fewer layers."""
    limit = replace(free_memory([gpu(gib * GIB)]), ram=RAM)
    result = fit(WHOLE, limit)
    assert (result.layers, result.context) == (layers, context)
    assert result.memory.fits(limit)
    assert bool(result.notice) == (gib != 80)
    assert result.applied(WHOLE.settings).cache_type_k == ("auto" if gib > 20 else "q8_0")


def test_without_room_on_the_gpu_all_is_in_the_memory_of_the_cpu() -> None:
    result = fit(WHOLE, replace(free_memory([gpu(GIB)]), ram=RAM))
    assert (result.layers, result.context, result.shortage) == (0, 131_072, "")


@pytest.mark.parametrize(
    "own",
    [
        {"cache_type_v": "f16"},
        {"cache_type_k": "f16"},
        {"flash_attention": "off"},
        {"deterministic": True},
    ],
)
def test_only_an_open_format_of_the_cache_is_chosen(own: dict[str, Any]) -> None:
    settings = LlamaCppSection(**own)
    result = fit(replace(WHOLE, settings=settings), Memory(RAM, 9 * GIB))
    assert result.applied(settings).cache_type_k == settings.cache_type_k


def test_what_llama_cpp_does_not_quantize_is_loaded_plain() -> None:
    first = fit(WHOLE, Memory(RAM, 10 * GIB))
    assert first.applied(WHOLE.settings).cache_type_v == "q8_0"

    def load(attempt: Fit) -> str:
        if attempt.applied(WHOLE.settings).cache_type_v == "q8_0":
            raise ModelLoadError("quantized V cache was requested, but this requires it")
        return "loaded"

    loaded, result = load_fitted(first, load)
    assert (loaded, result.demand) == ("loaded", WHOLE)


@given(gib=st.integers(0, 40), asked=st.integers(8, 24), cpu=st.booleans())
def test_a_context_of_the_user_fits_or_a_sentence_says_which_one_does(
    gib: int,
    asked: int,
    cpu: bool,  # noqa: FBT001 - an example
) -> None:
    demand = replace(WHOLE, context=2**asked, context_fixed=True)
    if cpu:
        demand = replace(demand, layers=0, gpus=0)
    limit = Memory(gib * GIB, 0 if cpu else 10 * GIB)
    result = fit(demand, limit)
    assert result.context == demand.context
    assert bool(result.shortage) == bool(result.notice and result.shortage in result.notice)
    if not result.shortage:
        return
    assert f"context of {2**asked:,} tokens does not fit" in result.shortage
    fitting = re.search(r"([\d,]+) tokens fit", result.shortage)
    if fitting:
        context = int(fitting[1].replace(",", ""))
        assert context < demand.context
        assert not fit(replace(demand, context=context), limit).shortage


def test_two_gpus_hold_more_than_one() -> None:
    both = replace(free_memory([gpu(6 * GIB)] * 2), ram=RAM)
    assert fit(replace(WHOLE, gpus=2), both).layers == 33


def test_what_the_user_sets_is_left_alone() -> None:
    limit = Memory(RAM, 5 * GIB)
    context = fit(replace(WHOLE, context=32_768, context_fixed=True), limit)
    assert context.context == 32_768
    assert 0 < context.layers < 33
    layers = fit(replace(WHOLE, layers=10, layers_fixed=True), limit)
    assert layers.layers == 10
    assert 4_096 < layers.context < 131_072
    fixed = replace(WHOLE, layers_fixed=True, context_fixed=True)
    assert fit(fixed, Memory()).applied(WHOLE.settings) == WHOLE.settings


def test_on_a_cpu_the_context_fits_the_memory() -> None:
    cpu = replace(WHOLE, layers=0, gpus=0)
    assert not fit(cpu, Memory(RAM)).notice
    small = fit(cpu, Memory(16 * GIB))
    assert MIN_CONTEXT < small.context < 131_072
    assert small.memory.fits(Memory(16 * GIB))
    assert small.applied(cpu.settings).cache_type_k == "auto"  # slow to read with in 8 bits
    smallest = fit(cpu, Memory(10 * GIB))
    assert smallest.context == AGENT_CONTEXTS[1]
    assert smallest.applied(cpu.settings).cache_type_k == "q8_0"
    from_disk = fit(cpu, Memory(6 * GIB))  # weights stay on the disk
    assert from_disk.context > MIN_CONTEXT


@given(st.integers(0, 40), st.integers(0, 40), st.booleans(), st.booleans())
def test_more_memory_never_holds_less(low: int, more: int, layers: bool, context: bool) -> None:  # noqa: FBT001 - examples
    demand = replace(WHOLE, layers_fixed=layers, context_fixed=context)
    small, large = (fit(demand, Memory(RAM, gib * GIB)) for gib in (low, low + more))
    assert small.layers <= large.layers
    if small.layers == large.layers:
        assert small.context <= large.context


@given(st.integers(1, 1 << 24))
def test_fitted_contexts_come_in_few_steps(context: int) -> None:
    step = step_below(context)
    assert step <= context
    assert step > 0.7 * context
    assert step == context or step % 256 == 0
    assert step_below(step) == step


class Shortage:
    """Loads only what takes at most so much memory; it notes all attempts."""

    def __init__(self, limit: Memory) -> None:
        self.limit = limit
        self.attempts: list[Fit] = []

    def load(self, attempt: Fit) -> str:
        self.attempts.append(attempt)
        if not attempt.memory.fits(self.limit):
            raise MemoryShortageError("cudaMalloc failed: out of memory")
        return "loaded"


def test_a_lack_of_memory_is_met_with_less() -> None:
    shortage = Shortage(Memory(RAM, 12 * GIB))
    loaded, result = load_fitted(fit(WHOLE, Memory(RAM, 80 * GIB)), shortage.load)
    assert loaded == "loaded"
    assert result.layers == 33
    assert result.notice
    assert len(shortage.attempts) <= MAX_ATTEMPTS


@pytest.mark.parametrize("fixed", [True, False])
def test_attempts_end(*, fixed: bool) -> None:
    shortage = Shortage(Memory())
    demand = replace(WHOLE, layers_fixed=fixed, context_fixed=fixed)
    with pytest.raises(MemoryShortageError):
        load_fitted(Fit(demand, 33, 131_072), shortage.load)
    assert len(shortage.attempts) == (1 if fixed else MAX_ATTEMPTS)


def test_other_errors_are_not_met_with_less() -> None:
    attempts: list[Fit] = []

    def damaged(attempt: Fit) -> None:
        attempts.append(attempt)
        raise ModelLoadError("The file is damaged.")

    with pytest.raises(ModelLoadError, match="damaged"):
        load_fitted(Fit(WHOLE, 33, 131_072), damaged)
    assert len(attempts) == 1


def test_an_engine_loads_with_the_context_that_llama_cpp_has_memory_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lib = bindings()
    real: Any = lib.llama_init_from_model
    sizes: list[int] = []

    def short_of_memory(model: Any, params: Any) -> Any:
        sizes.append(params.n_ctx)
        if not 0 < params.n_ctx <= 5_000:
            native_log.receive(4, b"llama_init: failed to allocate buffer for kv cache\n", None)
            return None
        return real(model, params)

    monkeypatch.setattr(lib, "llama_init_from_model", short_of_memory)
    engine = Engine.load(PUP, settings(), Concurrency(1), lambda job, update: None)
    assert sizes == [0, 4_096]
    assert engine.context.size == 4_096
    (notice,) = engine.notices()
    assert "4,096 of 8,192 tokens" in notice
    engine.close()
    with pytest.raises(MemoryShortageError, match=r"allocate.*llamacpp\.context_size"):
        Engine.load(PUP, settings(context_size=8_192), Concurrency(1), lambda job, update: None)


def test_a_model_that_fits_is_loaded_as_before() -> None:
    own = settings()
    assert fit_model(check_model_file(PUP), own).applied(own) is own


def test_a_gpu_of_set_size_holds_a_part_of_a_model() -> None:
    header = check_model_file(PUP)
    free = GPU_RESERVE + 20 * 1024**2
    own = settings(flash_attention="on")
    result = fit_model(header, own, devices=[gpu(free)])
    assert result.context == 8192  # less than an agent needs: layers leave before tokens do
    assert result.layers in range(1, 7)
    applied = result.applied(own)
    assert (applied.gpu_layers, applied.context_size) == (result.layers, own.context_size)


def test_the_devices_of_this_machine() -> None:
    assert available_memory() > 0
    assert all(device.kind in (DeviceKind.GPU, DeviceKind.INTEGRATED) for device in gpus())
    assert bool(bindings().llama_supports_gpu_offload()) or not gpus()


MIXED = replace(
    WHOLE,
    sizes=replace(
        EIGHT, layers=(600_000_000,) * 32, experts=(500_000_000,) * 32, expert_tensor=170_000_000
    ),
)
"""A model whose layers are mostly experts."""


@pytest.mark.parametrize(
    ("gib", "hosted", "context"),
    [(80, 0, 131_072), (32, 0, 98_304), (20, 15, 65_536), (12, 32, 65_536)],
)
def test_experts_leave_the_gpu_before_an_agents_context_does(
    gib: int, hosted: int, context: int
) -> None:
    """More context than an agent should have is worth less than their speed."""
    limit = Memory(RAM, gib * GIB)
    result = fit(MIXED, limit)
    assert (result.layers, result.hosted, result.context) == (33, hosted, context)
    assert result.memory.fits(limit)
    applied = result.applied(MIXED.settings)
    assert applied.cpu_moe == (hosted or -1)
    assert bool(result.notice and "experts" in result.notice) == bool(hosted)


@given(
    gib=st.floats(0, 40),
    count=st.integers(1, 3),
    setting=st.integers(-1, 40),
    layers=st.booleans(),
    context=st.booleans(),
)
def test_as_few_experts_as_possible_are_hosted(
    gib: float,
    count: int,
    setting: int,
    layers: bool,  # noqa: FBT001 - an example
    context: bool,  # noqa: FBT001 - an example
) -> None:
    limit = Memory(RAM, int(gib * GIB))
    own = MIXED.settings.model_copy(update={"cpu_moe": setting})
    hosted = min(32, max(0, setting))
    fixed = {"layers_fixed": layers, "context_fixed": context}
    demand = replace(MIXED, settings=own, gpus=count, hosted=hosted, **fixed)
    result = fit(demand, limit)
    if setting >= 0:
        assert result.hosted == hosted
    if count > 1:
        assert result.hosted in (hosted, 32)
    if result.hosted > hosted and count == 1:  # one less would not fit
        assert result.layers
        assert not replace(result, hosted=result.hosted - 1).memory.fits(limit)
    if result.notice and result.layers and not layers and not context:
        assert result.memory.fits(limit)
    assert result.memory.ram + result.memory.vram >= demand.sizes.weights
    whole = replace(result, hosted=0).memory
    moved = result.memory.ram - whole.ram
    on_gpus = max(0, result.hosted - (33 - result.layers)) if result.layers else 0
    assert moved == on_gpus * 500_000_000
    assert whole.vram - result.memory.vram == moved - (170_000_000 * count if moved else 0)


def test_a_lack_of_memory_is_met_with_experts_first() -> None:
    shortage = Shortage(Memory(RAM, 24 * GIB))
    _, result = load_fitted(fit(MIXED, Memory(RAM, 80 * GIB)), shortage.load)
    assert (result.layers, result.hosted) == (33, 32)


def test_layers_on_the_cpu_that_should_not_be_there_are_told() -> None:
    result = fit(WHOLE, Memory(RAM, 80 * GIB))
    assert result.misplaced({"CUDA0": 33}) is result.misplaced({"D0": 16, "D1": 17}) is None
    notice = result.misplaced({"CUDA0": 20, "CPU": 13})
    assert notice
    assert "13 of 33 layers" in notice
    assert fit(replace(WHOLE, layers=0, gpus=0), Memory(RAM)).misplaced({"CPU": 33}) is None


def test_llama_cpp_tells_where_it_puts_layers_and_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native_log, "progress", 0.0)
    engine = Engine.load(PUP, settings(), Concurrency(1), lambda job, update: None)
    blocks = check_model_file(PUP).values["qwen3.block_count"]
    assert engine.model.places.total() == blocks + 1
    assert native_log.progress == 1
    engine.close()
