"""How fast models will write and read here: llama.cpp computes layers that were made up.

A layer as wide as those of an 8B model, loaded from a file as any model, has the same kernels,
weights arranged in the same way, and threads. Its time tells that of the weights of a type. Narrow
layers tell what a layer takes beside its weights, and `flash.py` what attention takes. All is in
the time of the processor: what other programs do meanwhile does not count.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple

from msgspec import Struct

from shepherd.backends.llamacpp.native.batch import Batch, Span
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.devices import Device, available_memory
from shepherd.backends.llamacpp.native.fitting import Fit
from shepherd.backends.llamacpp.native.flash import (
    BATCH,
    CELLS,
    attention_seconds,
    flash_is_faster,
    least_seconds,
    remembered,
)
from shepherd.backends.llamacpp.native.gguf import BLOCKS
from shepherd.backends.llamacpp.native.model import load_error
from shepherd.backends.llamacpp.native.params import (
    TINY_MODEL,
    ModelTraits,
    context_params,
    default_threads,
    model_params,
    usable_cores,
)
from shepherd.backends.llamacpp.native.sizes import ModelSizes
from shepherd.catalog.local_models import gpu_bandwidths
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ModelLoadError

DEPTH = 8192
"""Tokens of the conversation behind which a speed of writing is predicted."""
PROMPT = 512
"""Tokens of the prompt for which a speed of reading is predicted."""

_TOKENS = 32
_CONTEXT, _VOCABULARY = 256, 256
_GROUP = 4
_NUMBER_BYTES = 4
"""Bytes of a number of keys and one of values in f16."""
_SMALL_PART = 20
"""A type with less than this part of the weights, as that of norms, is left out."""
_U32, _F32, _STRING = 4, 6, 8
_ALIGNMENT = 32


class Costs(NamedTuple):
    """Seconds that something takes for the only token of a step, and for each of many.

    They are infinite if that can't be measured.
    """

    one: float
    many: float


class Speed(Struct, frozen=True):
    """The costs of a processor, and the bytes per second of a GPU's memory, 0 if not known.

    `weights` has the costs of a byte by ggml's type, and `attention` those of a number of the
    queries beside a token before it, by the numbers of a head. Beside them, a `layer` costs
    something for the only token, and for each number of its width for each of many.
    """

    vram: float
    weights: Callable[[int], Costs]
    attention: Callable[[int], Costs]
    layer: Callable[[], Costs]


class _Shape(NamedTuple):
    """The numbers of a made-up model; a group of heads shares keys and values."""

    layers: int
    width: int
    inner: int
    head: int

    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        """The sizes of all tensors by their names."""
        width, inner, shared = self.width, self.inner, self.width // _GROUP
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm": (width,), "attn_q": (width, width), "attn_k": (width, shared),
            "attn_v": (width, shared), "attn_output": (width, width), "ffn_norm": (width,),
            "ffn_gate": (width, inner), "ffn_up": (width, inner), "ffn_down": (inner, width),
        }  # fmt: skip
        return {
            "token_embd.weight": (width, _VOCABULARY),
            "output_norm.weight": (width,),
            **{
                f"blk.{i}.{name}.weight": sizes
                for i in range(self.layers)
                for name, sizes in layer.items()
            },
        }


_WIDE = _Shape(1, 4096, 8192, 128)
_NARROW = _Shape(8, 256, 64, 64)


def measured_speed(devices: Sequence[Device]) -> Speed:
    """What this processor takes, when it is asked for; of several GPUs the slowest one counts."""
    vram = min(map(data_sheet, devices), default=0)
    return Speed(vram, weight_costs, attention_costs, layer_costs)


@cache
def weight_costs(kind: int) -> Costs:
    """Those of a byte in the format of ggml's type."""
    one, many, size = _layer_seconds(_WIDE, kind)
    return Costs(one / size, max(0, many - layer_costs().many * _WIDE.width) / size)


@cache
def layer_costs() -> Costs:
    """Those of a layer beside its weights, which are small.

    Measured in one thread, because threads that wait for each other take time on a busy machine.
    """
    one, many, _size = _layer_seconds(_NARROW, bindings().GGML_TYPE_Q8_0)
    return Costs(one, many / _NARROW.width / usable_cores())


@cache
def attention_costs(head: int) -> Costs:
    """Those for heads of so many numbers with the faster kind of attention."""
    head = min((64, 128, 256), key=lambda known: abs(known - head))
    is_flash = flash_is_faster(head, _GROUP, 1)
    one, many = attention_seconds(head, _GROUP)[is_flash]
    masked = 1 if is_flash else 2  # without it, the later half of a prompt is computed, too
    numbers = CELLS * head * _GROUP * usable_cores()
    return Costs(one / numbers, masked * many / BATCH / numbers)


def _layer_seconds(shape: _Shape, kind: int) -> tuple[float, float, int]:
    """The time of a layer for a token and for each of many, and its bytes."""
    size = sum(_bytes(sizes, kind) for sizes in shape.tensors().values()) // shape.layers

    def measure() -> Sequence[float]:
        if 2 * size * shape.layers > available_memory():
            raise ModelLoadError("There is too little memory.")
        with TemporaryDirectory(prefix="shepherd-speed-") as directory:
            return _model_seconds(_write(Path(directory) / "layers.gguf", shape, kind), shape)

    try:
        one, many = remembered(f"layer {shape} {kind} {usable_cores()}", measure)
    except (OSError, ModelLoadError):
        return math.inf, math.inf, size
    return one / shape.layers, many / shape.layers, size


def _model_seconds(path: Path, shape: _Shape) -> Sequence[float]:
    """The least time of a step with one token, and that of one with many for each of them."""
    lib, settings = bindings(), LlamaCppSection(context_size=_CONTEXT, gpu_layers=0)
    model = lib.llama_model_load_from_file(str(path).encode(), model_params(settings, {}))
    if not model:
        raise load_error("No speed can be measured")
    heads = shape.width // shape.head
    traits = ModelTraits(TINY_MODEL, heads, 0, _CONTEXT, shape.head, _GROUP)
    params = context_params(settings, 1, traits)
    params.n_threads = params.n_threads_batch = default_threads(path.stat().st_size)
    context = lib.llama_init_from_model(model, params)
    try:
        steps = [_step_seconds(context, tokens) / tokens for tokens in (1, _TOKENS)]
        return [seconds / params.n_threads for seconds in steps]
    finally:
        lib.llama_free(context)
        lib.llama_model_free(model)


def _step_seconds(context: Any, tokens: int) -> float:
    """The least time of all threads for a step.

    All tokens have logits, else the last layer leaves them out.
    """
    lib, batch = bindings(), Batch(tokens)
    batch.fill([Span(0, 0, [0] * tokens, wants_logits=True, outputs=tokens)])

    def compute() -> None:
        lib.llama_memory_clear(lib.llama_get_memory(context), False)
        lib.llama_decode(context, batch.native)
        lib.llama_synchronize(context)

    return least_seconds(compute, process_time)


def _write(path: Path, shape: _Shape, kind: int) -> Path:
    """Write a model whose weights are a hole in the file: zeros."""
    heads, tensors = shape.width // shape.head, shape.tensors()
    values: dict[str, int | float | str] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "no_vocab",
        "llama.vocab_size": _VOCABULARY,
        "llama.block_count": shape.layers,
        "llama.context_length": _CONTEXT,
        "llama.embedding_length": shape.width,
        "llama.feed_forward_length": shape.inner,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": heads // _GROUP,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
    }
    data = b"GGUF" + struct.pack("=IQQ", 3, len(tensors), len(values))
    for key, value in values.items():
        data += _text(key)
        if isinstance(value, str):
            data += struct.pack("=I", _STRING) + _text(value)
        else:
            code = (_U32, "I") if isinstance(value, int) else (_F32, "f")
            data += struct.pack(f"=I{code[1]}", code[0], value)
    end = 0
    for name, sizes in tensors.items():
        number = kind if len(sizes) > 1 else bindings().GGML_TYPE_F32
        data += _text(name)
        data += struct.pack(f"=I{len(sizes)}QIQ", len(sizes), *sizes, number, end)
        end += _bytes(sizes, kind)
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + end + _ALIGNMENT)
    return path


def _text(content: str) -> bytes:
    """A text of a header, behind its length."""
    return struct.pack("=Q", len(content)) + content.encode()


def _bytes(sizes: Sequence[int], kind: int) -> int:
    """The bytes of a tensor in the file, at whose end the next one begins."""
    elements, size = BLOCKS[kind if len(sizes) > 1 else 0]
    size = math.prod(sizes) // elements * size
    return size + -size % _ALIGNMENT


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
    host, gpu = 0.0, sizes.output if fit.layers else 0.0
    for i, layer in enumerate(sizes.layers):
        experts = sizes.experts[i] if sizes.experts else 0
        rest, used = layer - experts + sizes.states[i], experts * sizes.expert_share
        host += (rest if i < first else 0) + (used if i < max(first, fit.hosted) else 0)
        gpu += rest + sizes.cells[i] * depth if i >= first else 0
        gpu += used if i >= max(first, fit.hosted) else 0
    seconds = 0.0
    if host:
        seconds += host * _mixed(sizes, speed).one
        seconds += _queries(sizes, first) * depth * speed.attention(sizes.head).one
    if not fit.layers:
        seconds += sizes.output * speed.weights(sizes.output_kind).one
    seconds = seconds * _unused(sizes) + (first * speed.layer().one if first else 0)
    if gpu:
        seconds += gpu / speed.vram if speed.vram else math.inf
    return 1 / seconds if seconds else 0


def reading_speed(fit: Fit, speed: Speed) -> float:
    """Tokens per second of a short prompt; 0 with a GPU, whose arithmetic is not measured."""
    sizes = fit.demand.sizes
    if fit.layers:
        return 0
    # The last layer computes little for tokens that no answer follows.
    used = sum(sizes.layers[:-1]) - sum(sizes.experts[:-1]) * (1 - sizes.expert_share)
    count = len(sizes.layers)
    attention = _queries(sizes, count) * PROMPT / 2 * speed.attention(sizes.head).many
    layers = count * sizes.width * speed.layer().many
    seconds = (used * _mixed(sizes, speed).many + attention + layers) * _unused(sizes)
    return 1 / seconds if seconds else 0


def _mixed(sizes: ModelSizes, speed: Speed) -> Costs:
    """The costs of a byte of the layers, by the types that they have most of."""
    enough = sum(sizes.kinds.values()) / _SMALL_PART
    costs = {kind: speed.weights(kind) for kind, size in sizes.kinds.items() if size > enough}
    total = sum(sizes.kinds[kind] for kind in costs)
    one = sum(sizes.kinds[kind] * each.one for kind, each in costs.items())
    many = sum(sizes.kinds[kind] * each.many for kind, each in costs.items())
    return Costs(one / (total or 1), many / (total or 1))


def _queries(sizes: ModelSizes, layers: int) -> float:
    """The numbers of the first layers' queries, by the keys that their cells have."""
    return sum(sizes.cells[:layers]) / _NUMBER_BYTES * sizes.group


def _unused(sizes: ModelSizes) -> float:
    """How much slower it is on fewer threads than this processor has cores: a tiny model."""
    return usable_cores() / default_threads(sizes.weights)
