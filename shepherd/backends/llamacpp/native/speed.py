"""How fast models will write and read here, from a measurement of a second."""

import ctypes
from collections.abc import Sequence
from functools import cache
from time import process_time
from typing import Any

from msgspec import Struct

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.devices import Device, available_memory
from shepherd.backends.llamacpp.native.fitting import Fit
from shepherd.backends.llamacpp.native.graphs import least_seconds
from shepherd.backends.llamacpp.native.params import usable_cores
from shepherd.catalog.local_models import gpu_bandwidths

DEPTH = 8192
"""Tokens of the conversation behind which a speed is predicted."""

_WIDTH = 4096
_ROWS = 131_072
"""Rows of weights that are read for one token: 288 MiB, more than a processor keeps beside it."""
_BATCH, _BATCH_ROWS = 128, 8192
_SHARE_OF_MEMORY = 4
_Q4_BYTES = 144 / 256
"""Bytes of a weight in Q4_K."""
_FILL = 0x11


class Speed(Struct, frozen=True):
    """Bytes of weights per second from each memory, and weights times tokens per second in batches.

    0 if it is not known.
    """

    ram: float
    vram: float
    batches: float


@cache
def processor_speed() -> tuple[float, float]:
    """Bytes per second for one token, and weights times tokens per second for many.

    Measured with llama.cpp's own kernel for Q4_K, in the time of the processor: what other programs
    do meanwhile does not count. (0, 0) if this build does not export it.
    """
    rows = min(_ROWS, int(available_memory() / _SHARE_OF_MEMORY / _WIDTH / _Q4_BYTES))
    try:
        one, many = _seconds(rows, 1), _seconds(_BATCH_ROWS, _BATCH)
    except AttributeError:
        return 0.0, 0.0
    return rows * _WIDTH * _Q4_BYTES / one, _BATCH_ROWS * _WIDTH * _BATCH / many


def _seconds(rows: int, tokens: int) -> float:
    """The least time of a product of weights and tokens."""
    threads = usable_cores()

    def product(lib: Any, context: Any) -> Any:
        library = bindings()
        weights = lib.ggml_new_tensor_3d(context, library.GGML_TYPE_Q4_K, _WIDTH, rows, 1)
        # Pages that were never written are all one page, which stays in the processor.
        ctypes.memset(lib.ggml_get_data(weights), _FILL, lib.ggml_nbytes(weights))
        inputs = lib.ggml_new_tensor_3d(context, library.GGML_TYPE_F32, _WIDTH, tokens, 1)
        return lib.ggml_mul_mat(context, weights, inputs)

    size = int(rows * _WIDTH * _Q4_BYTES) + 8 * tokens * (rows + _WIDTH) + 2**24
    return least_seconds(product, size, threads, lambda: process_time() / threads)


def measured_speed(devices: Sequence[Device]) -> Speed:
    """That of this processor and of GPUs, of which the slowest one counts."""
    ram, batches = processor_speed()
    return Speed(ram, min(map(data_sheet, devices), default=0), batches)


def data_sheet(gpu: Device) -> float:
    """Bytes per second of a GPU by its name; 0 if it is not in the table."""
    name = gpu.description
    known = [part for part in gpu_bandwidths() if part.lower() in name.lower()]
    return gpu_bandwidths()[max(known, key=len)] * 1e9 if known else 0


def writing_speed(fit: Fit, speed: Speed, depth: int = DEPTH) -> float:
    """Tokens per second with so many tokens before them; 0 if it is not known.

    Each token reads all weights that it uses once, and the cache.
    """
    sizes = fit.demand.sizes
    first = fit.demand.all_layers - fit.layers if fit.layers else len(sizes.layers)
    host, gpu = (0.0, sizes.output) if fit.layers else (sizes.output, 0.0)
    for i, layer in enumerate(sizes.layers):
        experts = sizes.experts[i] if sizes.experts else 0
        rest = layer - experts + sizes.cells[i] * depth + sizes.states[i]
        used = experts * sizes.expert_share
        host += (rest if i < first else 0) + (used if i < max(first, fit.hosted) else 0)
        gpu += (rest if i >= first else 0) + (used if i >= max(first, fit.hosted) else 0)
    if (host and not speed.ram) or (gpu and not speed.vram):
        return 0
    return 1 / (host / (speed.ram or 1) + gpu / (speed.vram or 1))


def reading_speed(fit: Fit, speed: Speed) -> float:
    """Tokens per second of a short prompt; 0 with a GPU, whose arithmetic is not measured."""
    sizes = fit.demand.sizes
    if fit.layers or not sizes.bits:
        return 0
    used = sum(sizes.layers) - sum(sizes.experts) * (1 - sizes.expert_share)
    return speed.batches / (used * 8 / sizes.bits)
