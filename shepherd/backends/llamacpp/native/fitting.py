"""How much of a model goes onto GPUs, and how large its context may be."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, structs

from shepherd.backends.base import Memory
from shepherd.backends.llamacpp.native import gguf, params
from shepherd.backends.llamacpp.native.devices import Device, available_memory, gpus, has_gpu
from shepherd.backends.llamacpp.native.model import MemoryShortageError
from shepherd.backends.llamacpp.native.sizes import ModelSizes, model_sizes
from shepherd.backends.llamacpp.rpc.workers import open_workers
from shepherd.config.llamacpp import LlamaCppSection

logger = logging.getLogger(__name__)

T = TypeVar("T")

GPU_RESERVE = 1024**3
"""Bytes that stay free on each GPU; llama.cpp's own fitting leaves as much
(`fit_params_target` in its `common.h`)."""

RAM_RESERVE = 256 * 1024**2
"""Bytes of the CPU's memory that stay free, for this process."""

MIN_CONTEXT = 4096
"""A context is not made smaller to fit; llama.cpp's own fitting has the same limit
(`fit_params_min_ctx`)."""

MAX_ATTEMPTS = 4
"""How often a model is loaded with less memory before the error is reported."""

_STEPS = 4
"""Sizes of a fitted context between a power of two and the next. Few sizes keep the conversations
of an earlier start usable."""


class Demand(Struct, frozen=True):
    """A model and how it should be loaded, without a limit of memory.

    `layers` are those on GPUs, `hosted` the first layers whose experts are not, and `context` is in
    tokens. Those that are `fixed` are the user's.
    """

    sizes: ModelSizes
    layers: int
    context: int
    layers_fixed: bool
    context_fixed: bool
    sequences: int
    settings: LlamaCppSection
    gpus: int = 0
    place: str = "the GPU"
    streams: int = 1
    hosted: int = 0

    @property
    def all_layers(self) -> int:
        """The number of layers for a GPU; the output counts as one."""
        return len(self.sizes.layers) + 1

    @property
    def most_hosted(self) -> int:
        """The layers whose experts may stay in the memory of the CPU."""
        is_open = self.gpus and self.settings.cpu_moe < 0 and any(self.sizes.experts)
        return len(self.sizes.layers) if is_open else self.hosted

    @property
    def rollback(self) -> int:
        """How many tokens the states of sequences can forget; 0 if nothing is drafted."""
        return 0 if self.settings.speculation == "off" else self.sizes.rollback(self.sequences)

    def memory(self, layers: int, context: int, hosted: int) -> Memory:
        """The memory with so many layers on GPUs, some `hosted`; a GPU gets the last ones first."""
        sizes = self.sizes
        # The output behind the layers is the first thing that goes onto a GPU.
        first = self.all_layers - layers if layers else len(sizes.layers)
        # A layer's weights, its cells of the KV cache, and its recurrent states.
        states = self.sequences * (1 + self.rollback)
        each = [
            weights + cell * context * self.streams + state * states
            for weights, cell, state in zip(sizes.layers, sizes.cells, sizes.states, strict=True)
        ]
        settings = self.settings.model_copy(update={"context_size": context})
        flash, ubatch = params.attention(settings, sizes.traits)
        compute = sizes.compute(context, ubatch, flash=flash != params.FLASH_OFF)
        output = sizes.output if layers else 0
        experts = sum(sizes.experts[first:hosted])
        # To read prompts, a GPU gets a copy of one tensor after the other.
        buffer = compute + (sizes.expert_tensor if experts else 0)
        vram = sum(each[first:]) - experts + output + buffer * self.gpus if layers else 0
        ram = sum(each[:first]) + experts + sizes.embedding + sizes.lookup + compute
        if not layers and not sizes.tied:  # a tied output is the embedding, which counts already
            ram += sizes.output
        return Memory(ram, vram)


class Fit(Struct, frozen=True):
    """How a model is loaded, as in its `demand`, and the memory that this takes."""

    demand: Demand
    layers: int
    context: int
    hosted: int = 0

    @property
    def memory(self) -> Memory:
        """The estimated memory."""
        return self.demand.memory(self.layers, self.context, self.hosted)

    @property
    def is_reduced(self) -> bool:
        """Whether it is less than the settings ask for."""
        demand = self.demand
        return self != Fit(demand, demand.layers, demand.context, demand.hosted)

    @property
    def is_divided(self) -> bool:
        """Whether a part is in the memory of the CPU that would be faster on GPUs."""
        return self.layers < self.demand.layers or self.hosted > self.demand.hosted

    @property
    def text(self) -> str:
        """The numbers, as a part of a sentence."""
        context = f"a context of {self.context:,} tokens"
        if not self.demand.gpus:
            return context
        experts = f" (without the experts of the first {self.hosted})" if self.hosted else ""
        layers = f"{self.layers} of {self.demand.all_layers} layers on {self.demand.place}"
        return f"{layers}{experts}, {context}"

    @property
    def notice(self) -> str | None:
        """A notice for the user if the model did not fit completely."""
        demand, parts = self.demand, list[str]()
        if self.layers < demand.layers:
            parts.append(f"{self.layers} of {demand.all_layers} layers are on {demand.place}")
        if self.hosted > demand.hosted:
            parts.append(f"the experts of {self.hosted} layers are in the memory of the CPU")
        if self.context < demand.context:
            parts.append(f"the context has {self.context:,} of {demand.context:,} tokens")
        if not parts:
            return None
        return (
            f"The model does not fit into the free memory completely: {', and '.join(parts)}. "
            "llamacpp.gpu_layers, llamacpp.cpu_moe and llamacpp.context_size set other numbers."
        )

    def applied(self, settings: LlamaCppSection) -> LlamaCppSection:
        """The settings with these numbers; unchanged if the model fits."""
        if not self.is_reduced:
            return settings
        layers = self.layers if self.layers < self.demand.layers else settings.gpu_layers
        context = self.context if self.context < self.demand.context else settings.context_size
        changed = {"gpu_layers": layers, "context_size": context, "cpu_moe": self.hosted}
        return settings.model_copy(update=changed)

    def smaller(self) -> "Fit | None":
        """The next attempt after a lack of memory: GPUs lose experts, then context, then layers."""
        if self.layers and self.hosted < self.demand.most_hosted:
            return structs.replace(self, hosted=self.demand.most_hosted)
        if not self.demand.context_fixed and self.context > MIN_CONTEXT:
            return structs.replace(self, context=max(MIN_CONTEXT, step_below(self.context // 2)))
        if not self.demand.layers_fixed and self.layers > 0:
            return structs.replace(self, layers=self.layers * 3 // 4)
        return None


def demand_of(
    header: gguf.GgufHeader,
    settings: LlamaCppSection,
    env: Mapping[str, str],
    *,
    devices: int,
    sequences: int = 1,
) -> Demand:
    """What a model needs with these settings on so many GPUs; raises ConfigError."""
    sizes = model_sizes(header, settings)
    layers = params.gpu_layers(settings, env)  # -1 for all
    most = len(sizes.layers) + 1 if devices else 0  # the output counts as one
    return Demand(
        sizes=sizes,
        layers=min(most, layers) if layers >= 0 else most,
        context=settings.context_size or sizes.trained_context,
        layers_fixed=layers >= 0,
        context_fixed=settings.context_size > 0,
        sequences=sequences if sizes.keeps_state else 1,
        settings=settings,
        gpus=devices,
        streams=sequences if settings.deterministic else 1,
        hosted=min(len(sizes.layers), max(0, settings.cpu_moe)),
    )


def fit(demand: Demand, limit: Memory) -> Fit:
    """The most that fits into `limit`: experts leave GPUs first, then context, then layers.

    If nothing fits, it is the least that may be tried.
    """
    layers, context, most = demand.layers, demand.context, demand.most_hosted
    if whole := _with_fewest_hosted(demand, layers, context, limit):
        return whole
    least_context = context if demand.context_fixed else min(context, MIN_CONTEXT)
    if not demand.layers_fixed:  # as many as leave room for the least context
        fits = (Fit(demand, n, least_context, most) for n in range(layers, 0, -1))
        layers = next((fit.layers for fit in fits if _fits(fit, limit)), 0)
    if not demand.context_fixed:
        context = _largest_context(demand, layers, limit)
    least = Fit(demand, layers, context, most if layers else demand.hosted)
    return _with_fewest_hosted(demand, layers, context, limit) or least


def _with_fewest_hosted(demand: Demand, layers: int, context: int, limit: Memory) -> Fit | None:
    """The fit with the most experts on GPUs; None if it never fits."""
    most = demand.most_hosted
    # llama.cpp divides layers among several GPUs by their number: only all or none stay equal.
    step = 1 if demand.gpus < 2 else max(1, most - demand.hosted)
    fits = (Fit(demand, layers, context, n) for n in range(demand.hosted, most + 1, step))
    return next((fit for fit in fits if _fits(fit, limit)), None)


def step_below(context: int) -> int:
    """The largest size for a fitted context of at most `context`, as 5,120 for 6,000."""
    if context < MIN_CONTEXT:
        return context
    step = 2 ** (context.bit_length() - 1) // _STEPS  # of the power of two below it
    return context // step * step


def free_memory(devices: Sequence[Device]) -> Memory:
    """The memory that a model may take now, with a reserve; that of GPUs is 0 without any."""
    reserves = (0 if device.remote else GPU_RESERVE for device in devices)
    vram = sum(max(0, d.free - reserve) for d, reserve in zip(devices, reserves, strict=True))
    return Memory(max(0, available_memory() - RAM_RESERVE), vram)


def model_gpus(settings: LlamaCppSection) -> Sequence[Device]:
    """The GPUs for models with these settings; those of unknown size are left to llama.cpp.

    Several that share a model as the settings say get equal parts: the fullest one limits all.
    RPC workers come first. Raises WorkerError if one can't be reached.
    """
    workers = open_workers(settings)
    if workers is not None:
        return workers.devices
    count = params.gpu_count(settings)
    devices = [device for device in gpus(count) if device.total]
    free = min((device.free for device in devices), default=0)
    return [structs.replace(device, free=free) for device in devices] if count > 1 else devices


def fit_model(
    header: gguf.GgufHeader,
    settings: LlamaCppSection,
    *,
    sequences: int = 1,
    beside: int = 0,
    limit: Memory | None = None,
    devices: Sequence[Device] | None = None,
) -> Fit:
    """How a model is loaded now, or into `limit`; raises ConfigError for a bad variable.

    `beside` are bytes that something else will take on the same device. `devices` are the GPUs,
    those of this machine by default.
    """
    if devices is None:
        devices = model_gpus(settings)
    demand = demand_of(header, settings, os.environ, devices=len(devices), sequences=sequences)
    if any(device.remote for device in devices):
        demand = structs.replace(demand, place="the RPC workers")
    if has_gpu() and not devices:  # nothing is known about the memory of GPUs
        return Fit(demand, demand.layers, demand.context, demand.hosted)
    if limit is None:
        free = free_memory(devices)
        limit = free - (Memory(vram=beside) if devices else Memory(ram=beside))
    return fit(demand, limit)


def load_fitted(first: Fit, load: Callable[[Fit], T]) -> tuple[T, Fit]:
    """Load a model, with less each time that memory is short; raises ModelLoadError."""
    attempt = first
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return load(attempt), attempt
        except MemoryShortageError as error:
            less = attempt.smaller()
            if less is None:
                raise
            logger.info("Loading with less memory: %s", error)
            attempt = less
    return load(attempt), attempt


def _largest_context(demand: Demand, layers: int, limit: Memory) -> int:
    """The largest context that fits with so many layers on GPUs, but at least MIN_CONTEXT."""
    context, hosted = demand.context, demand.most_hosted
    while context > MIN_CONTEXT and not _fits(Fit(demand, layers, context, hosted), limit):
        context = max(MIN_CONTEXT, step_below(context - 1))
    return context


def _fits(fit: Fit, limit: Memory) -> bool:
    """Whether it fits; weights that are larger than the CPU's memory stay on the disk."""
    memory = fit.memory
    weights = fit.demand.memory(fit.layers, 0, fit.hosted).ram  # without a context
    if weights > limit.ram:
        memory = structs.replace(memory, ram=memory.ram - weights)
    return memory.fits(limit)
