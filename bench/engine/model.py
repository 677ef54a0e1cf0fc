"""The models of both sides: Pup with a larger context, and a bigger one with random weights."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.weights import with_context
from shepherd.models import builtin_model

if TYPE_CHECKING:
    import gguf
    import numpy as np
    from numpy.typing import NDArray

UNUSED = 5
WORD = re.compile("Ġ?[a-z]+")


@dataclass(frozen=True, slots=True)
class Shape:
    """A llama's size; the default has SmolLM's width with fewer layers, 129 million parameters."""

    width: int = 576
    layers: int = 26
    heads: int = 9
    kv_heads: int = 3
    feed_forward: int = 1536
    vocabulary: int = 32_000


def pup_with_context(path: Path, context: int) -> Path:
    """Pup with `context` in its metadata: llama.cpp's server does not offer more than that."""
    return with_context(builtin_model(), path, context)


def random_llama(path: Path, context: int, shape: Shape) -> Path:
    """A llama with Pup's tokenizer and template, in Q8_0, that writes lower-case words forever.

    All other tokens, including those that end an answer, have no weight in the output. Every server
    therefore sends one piece of text per token.
    """
    import gguf
    import numpy as np

    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    tokens = _add_vocabulary(writer, shape.vocabulary)
    writer.add_context_length(context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    for name, (rows, columns) in _matrices(shape).items():
        weights = random.standard_normal((rows, columns), dtype=np.float32) / columns**0.5
        if name == "output":
            weights[[WORD.fullmatch(token) is None for token in tokens]] = 0.0
        _add_quantized(writer, f"{name}.weight", weights)
    for name in _norms(shape):
        writer.add_tensor(f"{name}.weight", np.ones(shape.width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_quantized(writer: "gguf.GGUFWriter", name: str, weights: "NDArray[np.float32]") -> None:
    import gguf

    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)


def _add_vocabulary(writer: "gguf.GGUFWriter", size: int) -> list[str]:
    """Pup's vocabulary, filled up to `size` with unused tokens, like those of big models."""
    from gguf import GGUFReader

    from shepherd.models import builtin_model

    reader = GGUFReader(builtin_model())

    def value(key: str) -> Any:
        field = reader.get_field(key)
        if field is None:
            raise RuntimeError(f"the built-in model has no {key}")
        return field.contents()

    tokens: list[str] = value("tokenizer.ggml.tokens")
    filler = [f"[unused{n}]" for n in range(size - len(tokens))]
    writer.add_tokenizer_model(value("tokenizer.ggml.model"))
    writer.add_tokenizer_pre(value("tokenizer.ggml.pre"))
    writer.add_token_list([*tokens, *filler])
    writer.add_token_types([*value("tokenizer.ggml.token_type"), *([UNUSED] * len(filler))])
    writer.add_token_merges(value("tokenizer.ggml.merges"))
    writer.add_eos_token_id(value("tokenizer.ggml.eos_token_id"))
    writer.add_pad_token_id(value("tokenizer.ggml.padding_token_id"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(value("tokenizer.chat_template"))
    return [*tokens, *filler]


def _matrices(shape: Shape) -> dict[str, tuple[int, int]]:
    """The shapes of all weights, rows first."""
    width, wide = shape.width, shape.feed_forward
    kv_width = width // shape.heads * shape.kv_heads
    matrices = {"token_embd": (shape.vocabulary, width), "output": (shape.vocabulary, width)}
    for i in range(shape.layers):
        matrices |= {
            f"blk.{i}.attn_q": (width, width),
            f"blk.{i}.attn_k": (kv_width, width),
            f"blk.{i}.attn_v": (kv_width, width),
            f"blk.{i}.attn_output": (width, width),
            f"blk.{i}.ffn_gate": (wide, width),
            f"blk.{i}.ffn_up": (wide, width),
            f"blk.{i}.ffn_down": (width, wide),
        }
    return matrices


def _norms(shape: Shape) -> list[str]:
    inside = [f"blk.{i}.{kind}_norm" for i in range(shape.layers) for kind in ("attn", "ffn")]
    return [*inside, "output_norm"]
