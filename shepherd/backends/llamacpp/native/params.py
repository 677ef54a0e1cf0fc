"""Settings as llama.cpp's parameter structs."""

import ctypes
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from shepherd.backends.llamacpp.native.bindings import (
    bindings,
    native_functions,
    progress_callback,
)
from shepherd.backends.llamacpp.native.devices import device_limits, has_gpu
from shepherd.backends.llamacpp.native.flash import flash_is_faster
from shepherd.backends.llamacpp.native.gguf import MAX_LAYERS
from shepherd.backends.llamacpp.rpc.workers import Workers
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ConfigError

FLASH_AUTO, FLASH_OFF, FLASH_ON = -1, 0, 1
"""llama.cpp's own numbers (`llama_flash_attn_type`)."""

MAX_SCORES = 256 * 1024**2
WEIGHTS_PER_SCORES = 4
"""Without flash attention the scores of a batch may take this many bytes, or this fraction of the
weights' bytes if that is more."""

MIN_UBATCH = 128
"""Larger batches are not faster on a CPU: SmolLM2 reads 85 tokens per second in batches of 32, and
82 in batches of 512."""

_SCORE_BYTES = 4
_TYPES = {"auto": FLASH_AUTO, "off": FLASH_OFF, "on": FLASH_ON}

GPU_LAYERS_VARIABLE = "GGML_N_GPU_LAYERS"

TINY_MODEL = 64 * 1024 * 1024
"""Models with fewer bytes of weights run slower on several threads."""

_BF16 = 30
_SPLIT_LAYER = 1
_SPLIT_ROW = 2
_MAX_SEQUENCES = 256

ROWS = (2, 4, 8)
"""Tokens to which parts of batches are padded; the first number that passes the check is used."""

_TILED_VARIABLE = "GGML_CPU_TILED_MM"

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""The names of experts' weights (`LLM_FFN_EXPS_REGEX` of llama.cpp's `common.h`)."""

_PADDING = 256
"""llama.cpp's unit for the size of a context."""


class ModelTraits(Struct, frozen=True):
    """What a context's parameters depend on.

    `weights` are bytes, and `heads` is the largest number of a layer's query heads. `window` and
    `trained_context` are tokens; the window is 0 without a sliding one. `head` are the numbers of a
    head, of which each `group` shares keys and values; 0 if that is not known.
    """

    weights: int
    heads: int
    window: int
    trained_context: int
    head: int = 0
    group: int = 1


class Attention(NamedTuple):
    """`flash` is llama.cpp's `flash_attn_type`, `ubatch` the tokens that are computed at once."""

    flash: int
    ubatch: int


def model_params(
    settings: LlamaCppSection, env: Mapping[str, str], workers: Workers | None = None
) -> Any:
    """How to load the model, with layers on `workers`.

    Raises ConfigError for a bad GGML_N_GPU_LAYERS, and for too many devices.
    """
    lib = bindings()
    params = lib.llama_model_default_params()
    params.n_gpu_layers = gpu_layers(settings, env)
    params.progress_callback = progress_callback()
    if settings.deterministic:
        # results do not depend on batches if weights are not repacked for groups of tokens;
        # the variable, for tiled weights, is read once, before the first batch of the process
        params.use_extra_bufts = False
        os.environ[_TILED_VARIABLE] = "0"
    if settings.cpu_moe > 0:
        _keep_experts(params, settings.cpu_moe)
    params.split_mode = _SPLIT_ROW if settings.tensor_parallel > 1 else _SPLIT_LAYER
    gpus = gpu_count(settings)
    max_devices: int = lib.llama_max_devices()
    if workers is not None:
        workers.divide(params, max_devices)
    elif 1 < gpus <= max_devices:  # equal shares of the first GPUs, and nothing on the others
        shares = [1.0] * gpus + [0.0] * (max_devices - gpus)
        params.tensor_split = (ctypes.c_float * max_devices)(*shares)
    return params


class _Override(ctypes.Structure):
    """llama.cpp's `llama_model_tensor_buft_override`, which the bindings lack."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def _keep_experts(params: Any, layers: int) -> None:
    """Leave the experts of the first layers in the memory of the CPU."""
    cpu = native_functions({"cpu_buffer_type": (ctypes.c_void_p,)}).ggml_backend_cpu_buffer_type()
    numbers = "|".join(map(str, range(min(layers, MAX_LAYERS))))
    pattern = rf"^blk\.({numbers}){EXPERTS}".encode()
    overrides = (_Override * 2)((pattern, cpu))  # an empty one ends the list
    params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    params.kept_overrides = overrides  # the pointer alone would not keep them alive


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


def set_deterministic_context(params: Any, trained_context: int) -> None:
    """Make results independent of batches: each sequence has its own cells for a whole context.

    A batch is computed at once, because llama.cpp could split it between any two tokens.
    """
    sequences, padding = params.n_seq_max, ROWS[-1]
    size = (params.n_ctx or trained_context) + padding  # 0 is the size of the training
    rounded_up = size + -size % _PADDING
    params.n_ctx = sequences * rounded_up
    params.kv_unified = False
    params.swa_full = True
    params.n_ubatch = max(params.n_ubatch, 2 * padding * sequences)
    params.n_batch = params.n_ubatch


def batch_size(settings: LlamaCppSection) -> int:
    """Tokens of a prompt that are submitted at once: the setting, or what suits the device."""
    return settings.n_batch or max(device_limits().batch, settings.largest_ubatch)


def attention(settings: LlamaCppSection, traits: ModelTraits, ubatch: int = 0) -> Attention:
    """The settings; with "auto", a CPU uses flash attention where it was measured to be faster.

    Without it the scores must be small enough. It skips cells outside of a sliding window and
    those of other conversations, and a quantized V cache needs it. `ubatch` is used instead of the
    settings', unless it is 0.
    """
    whole = ubatch or min(settings.largest_ubatch, batch_size(settings))
    if settings.deterministic:
        return _deterministic(settings, traits, whole)
    if settings.flash_attention != "auto":
        return Attention(_TYPES[settings.flash_attention], whole)
    needs_flash = traits.window or not _has_plain_values(settings)
    if has_gpu() or needs_flash or _flash_wins(traits, settings.parallel or 1):
        return Attention(FLASH_AUTO, whole)
    fitting = _fitting_tokens(settings, traits)
    if fitting >= whole:
        return Attention(FLASH_OFF, whole)
    # Smaller batches would do without it, unless their size is set or they would be slow.
    if ubatch or settings.ubatch or fitting < MIN_UBATCH:
        return Attention(FLASH_AUTO, whole)
    return Attention(FLASH_OFF, fitting // MIN_UBATCH * MIN_UBATCH)


def _flash_wins(traits: ModelTraits, conversations: int) -> bool:
    """Whether it is faster; a tiny model is not worth the measurement."""
    if traits.weights < TINY_MODEL:
        return conversations > 1
    is_known = traits.head > 0 and traits.group > 0
    return is_known and flash_is_faster(traits.head, traits.group, conversations)


def _deterministic(settings: LlamaCppSection, traits: ModelTraits, whole: int) -> Attention:
    """Flash attention is off, because its kernels differ with the number of tokens.

    A quantized V cache needs it; it then has the same kernel for any number.
    """
    if not _has_plain_values(settings):
        return Attention(FLASH_ON, whole)
    fitting = _fitting_tokens(settings, traits) // MIN_UBATCH * MIN_UBATCH
    return Attention(FLASH_OFF, min(whole, max(MIN_UBATCH, fitting)))


def _fitting_tokens(settings: LlamaCppSection, traits: ModelTraits) -> int:
    """The tokens whose scores are small enough to be computed at once."""
    limit = max(MAX_SCORES, traits.weights // WEIGHTS_PER_SCORES)
    context = settings.context_size or traits.trained_context
    return limit // max(1, _SCORE_BYTES * traits.heads * context)


def _has_plain_values(settings: LlamaCppSection) -> bool:
    """Whether the V cache is not quantized."""
    return settings.cache_type_v in ("auto", "f32", "f16", "bf16")


def gpu_count(settings: LlamaCppSection) -> int:
    """The number of GPUs that share the model."""
    return max(settings.tensor_parallel, settings.pipeline_parallel)


def gpu_notice(settings: LlamaCppSection) -> str | None:
    """A notice if the settings ask for GPUs that llama.cpp can't use."""
    gpus = gpu_count(settings)
    if gpus == 1 or has_gpu():  # one is what the settings have by default
        return None
    return (
        f"The settings share the model among {gpus} GPUs (llamacpp.pipeline_parallel, "
        "llamacpp.tensor_parallel), but this llama.cpp is built without GPUs; it runs on the CPU."
    )


def gpu_layers(settings: LlamaCppSection, env: Mapping[str, str]) -> int:
    """Layers on the GPU, -1 for all; the environment takes precedence over the settings."""
    value = env.get(GPU_LAYERS_VARIABLE, "").strip()
    if not value:
        return settings.gpu_layers
    try:
        layers = int(value)
    except ValueError:
        layers = -2  # out of range, for the error below
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
    """ggml's number of a type; the bindings have no name for BF16 only."""
    name = name.replace("auto", "f16").upper()
    value: int = getattr(lib, f"GGML_TYPE_{name}", _BF16)
    return value
