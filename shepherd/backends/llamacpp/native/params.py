"""Settings as llama.cpp's parameter structs."""

import ctypes
import os
from collections.abc import Mapping
from typing import Any

from shepherd.backends.llamacpp.native.attention import ModelTraits, attention, batch_size
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.determinism import set_model_params
from shepherd.backends.llamacpp.native.devices import has_gpu
from shepherd.backends.llamacpp.rpc.workers import Workers
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ConfigError

GPU_LAYERS_VARIABLE = "GGML_N_GPU_LAYERS"

TINY_MODEL = 64 * 1024 * 1024
"""Models with fewer bytes of weights run slower on several threads."""

_SPLIT_LAYER = 1
_SPLIT_ROW = 2
_MAX_SEQUENCES = 256


def model_params(
    settings: LlamaCppSection, env: Mapping[str, str], workers: Workers | None = None
) -> Any:
    """How to load the model, with layers on `workers`.

    Raises ConfigError for a bad GGML_N_GPU_LAYERS, and for too many devices.
    """
    lib = bindings()
    params = lib.llama_model_default_params()
    params.n_gpu_layers = gpu_layers(settings, env)
    if settings.deterministic:
        set_model_params(params)
    params.split_mode = _SPLIT_ROW if settings.tensor_parallel > 1 else _SPLIT_LAYER
    gpus = gpu_count(settings)
    devices: int = lib.llama_max_devices()
    if workers is not None:
        workers.divide(params, devices)
    elif 1 < gpus <= devices:
        shares = [1.0] * gpus + [0.0] * (devices - gpus)
        params.tensor_split = (ctypes.c_float * devices)(*shares)
    return params


def gpu_count(settings: LlamaCppSection) -> int:
    """The number of GPUs that share the model."""
    return max(settings.tensor_parallel, settings.pipeline_parallel)


def gpu_notice(settings: LlamaCppSection) -> str | None:
    """A notice if the settings ask for GPUs that llama.cpp can't use."""
    gpus = gpu_count(settings)
    if gpus == 1 or has_gpu():
        return None
    return (
        f"The settings share the model among {gpus} GPUs (llamacpp.pipeline_parallel, "
        "llamacpp.tensor_parallel), but this llama.cpp is built without GPUs; it runs on the CPU."
    )


def context_params(settings: LlamaCppSection, parallel: int, traits: ModelTraits) -> Any:
    """The parameters of a context whose `parallel` sequences share one pool of cells."""
    lib = bindings()
    params = lib.llama_context_default_params()
    params.n_ctx = settings.context_size
    params.n_batch = batch_size(settings)
    params.flash_attn_type, params.n_ubatch = attention(settings, traits)
    params.n_seq_max = min(parallel, _MAX_SEQUENCES)
    params.kv_unified = True
    params.swa_full = settings.swa_full
    params.n_threads = params.n_threads_batch = settings.threads or default_threads(traits.weights)
    params.type_k = _ggml_type(lib, settings.cache_type_k)
    params.type_v = _ggml_type(lib, settings.cache_type_v)
    return params


def gpu_layers(settings: LlamaCppSection, env: Mapping[str, str]) -> int:
    """Layers on the GPU, -1 for all; the environment takes precedence over the settings."""
    value = env.get(GPU_LAYERS_VARIABLE, "").strip()
    if not value:
        return settings.gpu_layers
    try:
        layers = int(value)
    except ValueError:
        layers = -2
    if not -1 <= layers <= 100_000:
        raise ConfigError(
            f"{GPU_LAYERS_VARIABLE} must be a whole number from -1 to 100000, got {value!r}"
        )
    return layers


def default_threads(model_bytes: int) -> int:
    """One thread per core, but only one for a tiny model."""
    return 1 if model_bytes < TINY_MODEL else usable_cores()


def usable_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _ggml_type(lib: Any, name: str) -> int:
    value: int = getattr(lib, f"GGML_TYPE_{name.upper()}", 30)
    return value
