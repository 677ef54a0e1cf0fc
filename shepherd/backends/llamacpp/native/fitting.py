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
from shepherd.errors import ModelLoadError

logger = logging.getLogger(__name__)

T = TypeVar("T")

GPU_RESERVE = 1024**3
"""Bytes that stay free on each GPU; llama.cpp's own fitting leaves as much
(`fit_params_target` in its `common.h`)."""

RAM_RESERVE = 256 * 1024**2
"""Bytes of the CPU's memory that stay free, for this process."""

AGENT_CONTEXTS = 64 * 1024, 16 * 1024
"""Tokens that an agent should have, and those that it needs: more are worth less than speed."""

MIN_CONTEXT = 4096
"""A context is not made smaller to fit; llama.cpp's own fitting has the same limit
(`fit_params_min_ctx`)."""

_QUANTIZED = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
_QUANTIZED_CELL = 17, 32
"""The size of a cell of q8_0 as a fraction of one of f16; its rows are multiples of 32 numbers."""

MAX_ATTEMPTS = 4
"""How often a model is loaded with less memory before the error is reported."""

_STEPS = 4
"""Sizes of a fitted context between a power of two and the next. Few sizes keep the conversations
of an earlier start usable."""


class Demand(Struct, frozen=True):
    """A model and how it should be loaded, without a limit of memory.

    `layers` are those on GPUs, `hosted` the first layers whose experts are not, and `context` is in
    tokens. Those that are `fixed` are the user's. A demand with a quantized cache has the `plain`
    one that it replaces.
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
    plain: "Demand | None" = None

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

    @property
    def quantized(self) -> "Demand | None":
        """The same with a cache of about half the size, if settings and model leave that open."""
        sizes, settings = self.sizes, self.settings
        is_open = settings.cache_type_k == settings.cache_type_v == "auto"
        has_flash = settings.flash_attention != "off" and not settings.deterministic
        share, block = _QUANTIZED_CELL
        if not (is_open and has_flash and sizes.head) or sizes.head % block:
            return None
        cells = tuple(cell * share // block for cell in sizes.cells)
        return structs.replace(
            self,
            sizes=structs.replace(sizes, cells=cells),
            settings=settings.model_copy(update=_QUANTIZED),
            plain=self,
        )

    def cache(self, layers: int, context: int) -> Memory:
        """The KV cache alone."""
        first, tokens = self._first(layers), context * self.streams
        cells = self.sizes.cells
        return Memory(sum(cells[:first]) * tokens, sum(cells[first:]) * tokens)

    def _first(self, layers: int) -> int:
        """The first layer on a GPU: the output behind the layers is the first thing there."""
        return self.all_layers - layers if layers else len(self.sizes.layers)

    def memory(self, layers: int, context: int, hosted: int) -> Memory:
        """The memory with so many layers on GPUs, some `hosted`; a GPU gets the last ones first."""
        sizes, first = self.sizes, self._first(layers)
        # A layer's weights, and its recurrent states.
        states = self.sequences * (1 + self.rollback)
        each = [w + state * states for w, state in zip(sizes.layers, sizes.states, strict=True)]
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
        return Memory(ram, vram) + self.cache(layers, context)


class Fit(Struct, frozen=True):
    """How a model is loaded, as in its `demand`, and the memory that this takes.

    `limit` is what there is, None if that is not known.
    """

    demand: Demand
    layers: int
    context: int
    hosted: int = 0
    limit: Memory | None = None

    @property
    def memory(self) -> Memory:
        """The estimated memory."""
        return self.demand.memory(self.layers, self.context, self.hosted)

    @property
    def shortage(self) -> str:
        """Why the context is too large, and which one fits; "" if it fits or that isn't known."""
        if self.limit is None or _fits(self, self.limit):
            return ""
        most = fit(structs.replace(self.demand, context_fixed=False), self.limit)
        advice = f"{most.context:,} tokens fit" if _fits(most, self.limit) else "less does not help"
        return (
            f"A context of {self.context:,} tokens does not fit: the model takes {self.memory}, of "
            f"which {self.limit} are free; {advice} (llamacpp.context_size)."
        )

    @property
    def is_hopeless(self) -> bool:
        """Whether the user's context alone is larger than the memory: the system would kill us."""
        cache, limit = self.demand.cache(self.layers, self.context).ram, self.limit
        return limit is not None and self.demand.context_fixed and cache > limit.ram + RAM_RESERVE

    @property
    def is_divided(self) -> bool:
        """Whether a part is in the memory of the CPU that would be faster on GPUs."""
        return self.layers < self.demand.layers or self.hosted > self.demand.hosted

    @property
    def text(self) -> str:
        """The numbers, as a part of a sentence."""
        context = f"a context of {self.context:,} tokens"
        if self.demand.plain is not None:
            context += " in q8_0"
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
        if demand.plain is not None:
            parts.append("its numbers are in q8_0 (llamacpp.cache_type_k)")
        if not parts:
            return self.shortage or None
        return (
            f"The model does not fit into the free memory completely: {', and '.join(parts)}. "
            "llamacpp.gpu_layers, llamacpp.cpu_moe and llamacpp.context_size set other numbers. "
            f"{self.shortage}"
        ).rstrip()

    def misplaced(self, places: Mapping[str, int]) -> str | None:
        """A notice if llama.cpp has put layers onto the CPU that should be elsewhere."""
        missing = self.layers - sum(count for name, count in places.items() if name != "CPU")
        if not places or missing <= 0:
            return None
        others = f"{missing} of {self.demand.all_layers} layers, which should be on"
        return f"llama.cpp has put {others} {self.demand.place}, onto the CPU; that is slow."

    def applied(self, settings: LlamaCppSection) -> LlamaCppSection:
        """The settings with these numbers; unchanged if the model fits."""
        demand = self.demand
        changed: dict[str, object] = {} if demand.plain is None else dict(_QUANTIZED)
        if self.layers < demand.layers:
            changed["gpu_layers"] = self.layers
        if self.context < demand.context:
            changed["context_size"] = self.context
        if self.hosted > demand.hosted:
            changed["cpu_moe"] = self.hosted
        return settings.model_copy(update=changed) if changed else settings

    def smaller(self) -> "Fit | None":
        """The next attempt after a lack of memory: GPUs lose experts, then context, then layers."""
        if self.layers and self.hosted < self.demand.most_hosted:
            return structs.replace(self, hosted=self.demand.most_hosted)
        if not self.demand.context_fixed and self.context > MIN_CONTEXT:
            return structs.replace(self, context=max(MIN_CONTEXT, step_below(self.context // 2)))
        if not self.demand.layers_fixed and self.layers > 0:
            return structs.replace(self, layers=self.layers * 3 // 4)
        return None


def fit(demand: Demand, limit: Memory) -> Fit:
    """The most that fits into `limit`; if nothing fits, the least that may be tried.

    The cache is quantized where a plain one leaves less context than an agent should have, or
    fewer layers on GPUs. A CPU reads so slowly with it that only the context that an agent needs is
    worth that.
    """
    goal = min(demand.context, AGENT_CONTEXTS[0 if demand.gpus else 1])
    plain = _fit(demand, limit)
    if _rank(plain, limit) >= (True, demand.layers, goal) or demand.quantized is None:
        return plain
    smaller = _fit(demand.quantized, limit)
    if not demand.context_fixed:  # for more than that, a plain cache is better
        smaller = structs.replace(smaller, context=min(smaller.context, goal))
    return smaller if _rank(smaller, limit) > _rank(plain, limit) else plain


def _rank(fit: Fit, limit: Memory) -> tuple[bool, int, int]:
    """What counts most of a fit: that it fits, its layers on GPUs, and a context for an agent."""
    return _fits(fit, limit), fit.layers, min(fit.context, AGENT_CONTEXTS[0])


def _fit(demand: Demand, limit: Memory) -> Fit:
    """The most that fits into `limit` with the cache of `demand`.

    Experts leave GPUs until an agent has its context, then context, then layers.
    """
    layers, most = demand.layers, demand.most_hosted
    goals = [demand.context]
    if not demand.context_fixed:
        goals = [min(demand.context, goal) for goal in AGENT_CONTEXTS]
    tried = [_with_fewest_hosted(demand, layers, goal, limit) for goal in goals]
    if fits := [fit for fit in tried if fit is not None]:  # weights on the disk are a last resort
        return _widened(next((f for f in fits if f.memory.fits(limit)), fits[0]), limit)
    if not demand.layers_fixed:  # as many as leave room for the context that an agent needs
        attempts = (Fit(demand, n, goals[-1], most, limit) for n in range(layers, 0, -1))
        layers = next((fit.layers for fit in attempts if _fits(fit, limit)), 0)
    least = Fit(demand, layers, goals[-1], most if layers else demand.hosted, limit)
    if not demand.context_fixed:
        least = _widened(least, limit)
    return _with_fewest_hosted(demand, layers, least.context, limit) or least


def _with_fewest_hosted(demand: Demand, layers: int, context: int, limit: Memory) -> Fit | None:
    """The fit with the most experts on GPUs; None if it never fits."""
    most = demand.most_hosted
    # llama.cpp divides layers among several GPUs by their number: only all or none stay equal.
    step = 1 if demand.gpus < 2 else max(1, most - demand.hosted)
    fits = (Fit(demand, layers, context, n, limit) for n in range(demand.hosted, most + 1, step))
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
    sequences = settings.parallel or 1
    sizes = model_sizes(header, settings)
    layers = params.gpu_layers(settings, os.environ)  # -1 for all
    most = len(sizes.layers) + 1 if devices else 0  # the output counts as one
    demand = Demand(
        sizes=sizes,
        layers=min(most, layers) if layers >= 0 else most,
        context=settings.context_size or sizes.trained_context,
        layers_fixed=layers >= 0,
        context_fixed=settings.context_size > 0,
        sequences=sequences if sizes.keeps_state else 1,
        settings=settings,
        gpus=len(devices),
        place="the RPC workers" if any(device.remote for device in devices) else "the GPU",
        streams=sequences if settings.deterministic else 1,
        hosted=min(len(sizes.layers), max(0, settings.cpu_moe)),
    )
    if has_gpu() and not devices:  # nothing is known about the memory of GPUs
        return Fit(demand, demand.layers, demand.context, demand.hosted)
    if limit is None:
        free = free_memory(devices)
        limit = free - (Memory(vram=beside) if devices else Memory(ram=beside))
    return fit(demand, limit)


def load_fitted(first: Fit, load: Callable[[Fit], T]) -> tuple[T, Fit]:
    """Load a model, with less each time that memory is short; raises ModelLoadError.

    Where llama.cpp has no flash attention for a model, it refuses a quantized cache.
    """
    attempt = first
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return load(attempt), attempt
        except MemoryShortageError as error:
            less, reason = attempt.smaller(), error
        except ModelLoadError as error:
            plain, reason = attempt.demand.plain, error
            less = plain and attempt.limit and _fit(plain, attempt.limit)
        if less is None:
            raise reason
        logger.info("Loading with less memory: %s", reason)
        attempt = less
    return load(attempt), attempt


def _widened(fit: Fit, limit: Memory) -> Fit:
    """The same with the largest context that fits, but at least MIN_CONTEXT."""
    context = fit.demand.context
    while context > MIN_CONTEXT and not _fits(structs.replace(fit, context=context), limit):
        context = max(MIN_CONTEXT, step_below(context - 1))
    return structs.replace(fit, context=context)


def _fits(fit: Fit, limit: Memory) -> bool:
    """Whether it fits; weights that are larger than the CPU's memory stay on the disk."""
    memory = fit.memory
    weights = fit.demand.memory(fit.layers, 0, fit.hosted).ram  # without a context
    if weights > limit.ram:
        memory = structs.replace(memory, ram=memory.ram - weights)
    return memory.fits(limit)
