"""Times small graphs of ggml, which tell how fast llama.cpp computes on this processor."""

import ctypes
import mmap
from collections.abc import Callable
from functools import cache
from typing import Any

from shepherd.backends.llamacpp.native.bindings import native_functions

_ROUNDS = 3


class _Params(ctypes.Structure):
    """ggml's `ggml_init_params`."""

    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("none", ctypes.c_bool))


def least_seconds(
    build: Callable[[Any, Any], Any], size: int, threads: int, clock: Callable[[], float]
) -> float:
    """The least time of computing the tensor that `build` makes of ggml's library and a context.

    `size` are more bytes than its tensors take; pages that are not written are free. AttributeError
    if this build of llama.cpp does not export the functions.
    """
    lib = _ggml()
    memory = mmap.mmap(-1, size)  # zeros
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    context = lib.ggml_init(_Params(size, start, False))
    try:
        result = build(lib, context)
        graph = lib.ggml_new_graph(context)
        lib.ggml_build_forward_expand(graph, result)
        times: list[float] = []
        for _ in range(_ROUNDS):
            started = clock()
            lib.ggml_graph_compute_with_ctx(context, graph, threads)
            times.append(clock() - started)
        return min(times)
    finally:
        lib.ggml_free(context)


@cache
def _ggml() -> Any:
    """llama.cpp's library with the types of the functions for a graph."""
    pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    signatures = {
        "init": (pointer, _Params),
        "free": (None, pointer),
        "new_tensor_3d": (pointer, pointer, ctypes.c_int, number, number, number),
        "get_data": (pointer, pointer),
        "nbytes": (ctypes.c_size_t, pointer),
        "permute": (pointer, pointer, pointer, *[ctypes.c_int] * 4),
        "mul_mat": (pointer, pointer, pointer, pointer),
        "soft_max_ext": (pointer, pointer, pointer, pointer, real, real),
        "flash_attn_ext": (pointer, pointer, pointer, pointer, pointer, pointer, real, real, real),
        "new_graph": (pointer, pointer),
        "build_forward_expand": (None, pointer, pointer),
        "graph_compute_with_ctx": (ctypes.c_int, pointer, pointer, ctypes.c_int),
    }
    return native_functions(signatures, prefix="ggml_")
