"""Projectors with random weights, under a hundred kilobytes each, written in milliseconds."""

from pathlib import Path

import gguf
import numpy as np

from tests.backends.llamacpp import tiny

SIZE, PATCH, INNER, HEADS = 32, 4, 32, 2
"""Images are scaled to this size in pixels; a patch is a square of this side."""

IMAGE_TOKENS = 16
"""The tokens of an image with the Gemma 3 projector: patches are joined two by two."""


def write_gemma_projector(path: Path, *, width: int = tiny.WIDTH, seed: int = 0) -> Path:
    """A projector as that of Gemma 3: all images have the same size, and attention looks ahead."""
    writer = _writer(path, "gemma3", width)
    writer.add_uint32("clip.vision.projector.scale_factor", 2)
    shapes = _layer() | {
        "v.patch_embd.weight": (INNER, 3, PATCH, PATCH),
        "v.patch_embd.bias": (INNER,),
        "v.position_embd.weight": ((SIZE // PATCH) ** 2, INNER),
        "v.post_ln.weight": (INNER,),
        "v.post_ln.bias": (INNER,),
        "mm.input_projection.weight": (INNER, width),
        "mm.soft_emb_norm.weight": (INNER,),
    }
    return _write(writer, path, shapes, seed)


def write_qwen_projector(path: Path, *, width: int = tiny.WIDTH, seed: int = 0) -> Path:
    """A projector as that of Qwen2-VL: the number of tokens follows from the image's size."""
    writer = _writer(path, "qwen2vl_merger", width)
    joined = 4 * INNER
    shapes = _layer() | {
        "v.patch_embd.weight": (INNER, 3, PATCH, PATCH),
        "v.patch_embd.weight.1": (INNER, 3, PATCH, PATCH),
        "v.post_ln.weight": (INNER,),
        "v.post_ln.bias": (INNER,),
        "mm.0.weight": (joined, joined),
        "mm.0.bias": (joined,),
        "mm.2.weight": (width, joined),
        "mm.2.bias": (width,),
    }
    return _write(writer, path, shapes, seed)


def _writer(path: Path, kind: str, width: int) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("general.type", "mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_gelu", True)
    numbers = {
        "embedding_length": INNER,
        "feed_forward_length": 2 * INNER + 16,
        "block_count": 1,
        "projection_dim": width,
        "attention.head_count": HEADS,
        "image_size": SIZE,
        "patch_size": PATCH,
    }
    for name, number in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    return writer


def _layer() -> dict[str, tuple[int, ...]]:
    block = "v.blk.0"
    shapes: dict[str, tuple[int, ...]] = {}
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        shapes |= {f"{block}.{name}.weight": (INNER, INNER), f"{block}.{name}.bias": (INNER,)}
    for name in ("ln1", "ln2"):
        shapes |= {f"{block}.{name}.weight": (INNER,), f"{block}.{name}.bias": (INNER,)}
    wide = 2 * INNER + 16
    return shapes | {
        f"{block}.ffn_up.weight": (wide, INNER),
        f"{block}.ffn_up.bias": (wide,),
        f"{block}.ffn_down.weight": (INNER, wide),
        f"{block}.ffn_down.bias": (INNER,),
    }


def _write(
    writer: gguf.GGUFWriter, path: Path, shapes: dict[str, tuple[int, ...]], seed: int
) -> Path:
    random = np.random.default_rng(seed)
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32)
        values *= 2.0 / np.sqrt(shape[-1])
        if name.endswith(("ln1.weight", "ln2.weight", "norm.weight", "post_ln.weight")):
            values = 1.0 + 0.1 * values
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
