"""How long attention takes on this processor, and whether flash attention is the faster kind.

That differs by processor, by the build of llama.cpp and by the width of a model's heads. On a Xeon
with heads of 64 numbers it takes 1.5 times as long for one token behind 3,000, and 0.5 to 0.8 times
for 128 tokens; with heads of 256 it takes longer for both. The rest of a model is the same for
either. So only one group of heads is computed, in one thread and by processor time, which holds on
a busy machine too.
"""

import ctypes
import hashlib
import json
import math
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import thread_time
from typing import Any

from shepherd.backends.llamacpp.native.bindings import bindings, native_functions
from shepherd.config.paths import Paths

CELLS = 3072
"""The tokens before the new ones."""
BATCH = 128
_LARGEST_HEAD, _LARGEST_GROUP = 256, 8
_READ, _WRITTEN = 4, 128
"""What an agent does in a step: it reads so many batches, and writes tokens one after the other."""
_BYTES = 256 * 1024**2
"""More than the tensors take; untouched pages are free."""
_SECONDS, _LEAST_ROUNDS, _MOST_ROUNDS = 0.05, 2, 300
"""How long and how often something is measured again. Each round of ggml takes new memory."""
_HEADS = 4
"""The heads of a layer, whose keys and values are side by side in a cell."""


def flash_is_faster(head: int, group: int, conversations: int) -> bool:
    """For heads of so many numbers, of which a group shares its keys and values.

    The tokens of all conversations are in one cache. Flash attention passes over those of others,
    and without it their scores are computed, too.
    """
    plain, flash, skipped = (
        _WRITTEN * one + _READ * many for one, many in attention_seconds(head, group)
    )
    return flash + (conversations - 1) * skipped < conversations * plain


@cache
def attention_seconds(head: int, group: int) -> Sequence[tuple[float, float]]:
    """The time of one thread for a token and for a batch.

    Without flash attention, with it, and with it for cells that are all masked.
    """
    head, group = min(head, _LARGEST_HEAD), min(group, _LARGEST_GROUP)

    def measure() -> Sequence[tuple[float, float]]:
        return [
            (
                seconds(1, head, group, flash=flash, is_masked=is_masked),
                seconds(BATCH, head, group, flash=flash, is_masked=is_masked),
            )
            for flash, is_masked in ((False, False), (True, False), (True, True))
        ]

    return remembered(f"attention and masks {head} {group}", measure)


def remembered(what: str, measure: Callable[[], Any]) -> Any:
    """What was measured, the first time for this processor and build of llama.cpp."""
    status = Path(bindings().__file__).stat()
    machine = f"{what} {_processor()} {status.st_size} {status.st_mtime_ns}"
    name = f"speed-{hashlib.sha256(machine.encode()).hexdigest()[:32]}"
    file = Paths.from_env(os.environ).tried_models / name
    with suppress(OSError, ValueError):
        return json.loads(file.read_text())
    result = measure()
    with suppress(OSError):  # it is measured again then
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result))
    return result


def least_seconds(compute: Callable[[], object], clock: Callable[[], float]) -> float:
    """The least time of computing something."""
    times: list[float] = []
    # the first round is slower
    while len(times) <= _LEAST_ROUNDS or (sum(times) < _SECONDS and len(times) < _MOST_ROUNDS):
        started = clock()
        compute()
        times.append(clock() - started)
    return min(times)


def seconds(tokens: int, head: int, group: int, *, flash: bool, is_masked: bool = False) -> float:
    """The least time of a group's attention for new tokens."""
    # One token reads the cells of all heads, which do not fit into the processor's small caches.
    heads = _HEADS if tokens == 1 else 1

    def attention(lib: Any, context: Any) -> Any:
        """The result, of tensors in the order in which llama.cpp keeps them."""

        def tensor(kind: int, *sizes: int) -> Any:
            return lib.ggml_new_tensor_3d(context, kind, *sizes)

        def cells() -> Any:
            row = f16_bytes * head * _HEADS
            every = tensor(f16, head, _HEADS, CELLS)
            return lib.ggml_view_3d(context, every, head, CELLS, heads, row, f16_bytes * head, 0)

        f32, f16, f16_bytes = bindings().GGML_TYPE_F32, bindings().GGML_TYPE_F16, 2
        q = lib.ggml_permute(context, tensor(f32, head, heads * group, tokens), 0, 2, 1, 3)
        k = cells()
        if flash:
            v, mask = cells(), tensor(f16, CELLS, tokens, 1)
            lib.ggml_set_f32(mask, -math.inf if is_masked else 0.0)
            return lib.ggml_flash_attn_ext(context, q, k, v, mask, 1.0, 0.0, 0.0)
        v, mask = tensor(f16, CELLS, head, heads), tensor(f32, CELLS, tokens, 1)
        scores = lib.ggml_mul_mat(context, k, q)
        weights = lib.ggml_soft_max_ext(context, scores, mask, 1.0, 0.0)
        return lib.ggml_mul_mat(context, v, weights)

    return _graph_seconds(attention) / heads


class _Params(ctypes.Structure):
    """ggml's `ggml_init_params`."""

    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("none", ctypes.c_bool))


def _graph_seconds(build: Callable[[Any, Any], Any]) -> float:
    """The least time of computing the tensor that `build` makes of ggml's library and a context."""
    lib = _ggml()
    memory = mmap.mmap(-1, _BYTES)  # zeros
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    context = lib.ggml_init(_Params(_BYTES, start, False))
    try:
        result = build(lib, context)
        graph = lib.ggml_new_graph(context)
        lib.ggml_build_forward_expand(graph, result)
        return least_seconds(
            lambda: lib.ggml_graph_compute_with_ctx(context, graph, 1), thread_time
        )
    finally:
        lib.ggml_free(context)


@cache
def _ggml() -> Any:
    """llama.cpp's library with the types of the functions for a graph."""
    pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    signatures = {
        "init": (pointer, _Params),
        "free": (None, pointer),
        "set_f32": (pointer, pointer, real),
        "new_tensor_3d": (pointer, pointer, ctypes.c_int, number, number, number),
        "view_3d": (pointer, pointer, pointer, *[number] * 3, *[ctypes.c_size_t] * 3),
        "permute": (pointer, pointer, pointer, *[ctypes.c_int] * 4),
        "mul_mat": (pointer, pointer, pointer, pointer),
        "soft_max_ext": (pointer, pointer, pointer, pointer, real, real),
        "flash_attn_ext": (pointer, pointer, pointer, pointer, pointer, pointer, real, real, real),
        "new_graph": (pointer, pointer),
        "build_forward_expand": (None, pointer, pointer),
        "graph_compute_with_ctx": (ctypes.c_int, pointer, pointer, ctypes.c_int),
    }
    return native_functions(signatures, prefix="ggml_")


def _processor() -> str:
    """What Linux calls the processor, and its abilities; other systems stay on one processor."""
    with suppress(OSError):
        return Path("/proc/cpuinfo").read_text().partition("\n\n")[0].partition("model")[2]
    return ""
