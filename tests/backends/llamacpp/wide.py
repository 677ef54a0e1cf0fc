"""Headers of models as large as real ones; their weights are a hole in the file."""

import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np

HOLE = 64 * 1024**3
Q8 = gguf.GGMLQuantizationType.Q8_0


class Shape(NamedTuple):
    """The numbers of a model; `experts` are how many, how many of them a token uses, and width."""

    architecture: str
    layers: int
    width: int
    inner: int
    heads: int
    shared: int
    head: int
    vocabulary: int
    experts: tuple[int, int, int] | None = None
    window: int = 0


SHAPES: Mapping[str, Shape] = {
    "llama-3.1-8b": Shape("llama", 32, 4096, 14336, 32, 8, 128, 128256),
    "qwen3-8b": Shape("qwen3", 36, 4096, 12288, 32, 8, 128, 151936),
    "qwen3-30b-a3b": Shape("qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, (128, 8, 768)),
    "gemma-3-4b": Shape("gemma3", 34, 2560, 10240, 8, 4, 256, 262208, window=1024),
}


def write_wide(path: Path, shape: Shape) -> Path:
    """Write a header, in Q8_0."""
    file = gguf.GGUFWriter(path, shape.architecture)
    numbers = {
        "block_count": shape.layers,
        "context_length": 131_072,
        "embedding_length": shape.width,
        "feed_forward_length": shape.inner,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.shared,
        "attention.key_length": shape.head,
        "attention.value_length": shape.head,
        "rope.dimension_count": shape.head,
        "vocab_size": shape.vocabulary,
        "attention.sliding_window": shape.window,
    }
    count, used, width = shape.experts or (0, 0, 0)
    if shape.experts:
        numbers |= {"expert_count": count, "expert_used_count": used}
        numbers["expert_feed_forward_length"] = width
    for key, number in numbers.items():
        file.add_uint32(f"{shape.architecture}.{key}", number)
    file.add_layer_norm_rms_eps(1e-6)
    file.add_tokenizer_model("no_vocab")
    for name, sizes in _tensors(shape).items():
        kind = Q8 if len(sizes) > 1 and "gate_inp" not in name else gguf.GGMLQuantizationType.F32
        block, size = gguf.GGML_QUANT_SIZES[kind]
        length = prod(sizes) // block * size
        file.add_tensor_info(name, sizes[::-1], np.dtype(np.float32), length, kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_ti_data_to_file()
    file.close()
    os.truncate(path, path.stat().st_size + HOLE)
    return path


def _tensors(shape: Shape) -> dict[str, tuple[int, ...]]:
    """The sizes of all tensors by their names."""
    width, inner = shape.width, shape.inner
    queries, keys = shape.heads * shape.head, shape.shared * shape.head
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (width,), "attn_q": (width, queries), "attn_k": (width, keys),
        "attn_v": (width, keys), "attn_output": (queries, width), "ffn_norm": (width,),
    }  # fmt: skip
    if shape.architecture != "llama":
        layer |= {"attn_q_norm": (shape.head,), "attn_k_norm": (shape.head,)}
    if shape.window:
        layer |= {"post_attention_norm": (width,), "post_ffw_norm": (width,)}
    if shape.experts:
        count, _used, own = shape.experts
        layer |= {"ffn_gate_inp": (width, count), "ffn_down_exps": (own, width, count)}
        layer |= {f"ffn_{part}_exps": (width, own, count) for part in ("gate", "up")}
    else:
        layer |= {"ffn_gate": (width, inner), "ffn_up": (width, inner), "ffn_down": (inner, width)}
    tensors: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (width, shape.vocabulary),
        "output_norm.weight": (width,),
    }
    return tensors | {
        f"blk.{i}.{name}.weight": sizes
        for i in range(shape.layers)
        for name, sizes in layer.items()
    }
