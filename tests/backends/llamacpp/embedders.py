"""Models with random weights that make vectors of texts, written in milliseconds."""

from pathlib import Path

import gguf
import numpy as np

from tests.backends.llamacpp.tiny import CONTROL, NORMAL, UNKNOWN

WIDTH, HEADS, FEED_FORWARD, LAYERS = 64, 2, 96, 2
CONTEXT = 128
"""Tokens of the longest text."""

CLS, SEP = 1, 2


def write_bert(
    path: Path,
    pooling: gguf.PoolingType | None = gguf.PoolingType.MEAN,
    *,
    template: str = "",
    seed: int = 0,
) -> Path:
    """A BERT with WordPiece; one that pools by RANK gives a score. None names no pooling.

    `template` is the one for a query and a document.
    """
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(value=False)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    if template:
        writer.add_chat_template([{"name": "rerank", "template": template}])
    ranks = pooling is gguf.PoolingType.RANK
    if ranks:
        writer.add_classifier_output_labels(["score"])
    _add_weights(writer, _shapes(_add_vocabulary(writer), ranks=ranks), seed)
    return path


def _add_vocabulary(writer: gguf.GGUFWriter) -> int:
    """WordPiece as converted files have it: the beginnings of words are marked, not the rest."""
    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    letters = [chr(c) for c in range(ord("!"), ord("~") + 1)]
    words = ["▁the", "▁dog", "▁cat", "▁sleep", "▁there", "ing", "s", "▁in", "▁on", "▁house"]
    plain = [*(f"▁{letter}" for letter in letters), *letters, *words]
    tokens = [*specials, *dict.fromkeys(plain)]
    types = [CONTROL, CONTROL, CONTROL, UNKNOWN, CONTROL]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types + [NORMAL] * (len(tokens) - len(types)))
    writer.add_token_type_count(2)
    writer.add_bos_token_id(CLS)
    writer.add_sep_token_id(SEP)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(3)
    writer.add_mask_token_id(4)
    return len(tokens)


def _shapes(vocabulary: int, *, ranks: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, WIDTH),
        "token_types.weight": (2, WIDTH),
        "position_embd.weight": (CONTEXT, WIDTH),
        "token_embd_norm.weight": (WIDTH,),
        "token_embd_norm.bias": (WIDTH,),
    }
    for i in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes |= {f"blk.{i}.{name}.weight": (WIDTH, WIDTH), f"blk.{i}.{name}.bias": (WIDTH,)}
        for name in ("attn_output_norm", "layer_output_norm"):
            shapes |= {f"blk.{i}.{name}.weight": (WIDTH,), f"blk.{i}.{name}.bias": (WIDTH,)}
        shapes |= {
            f"blk.{i}.ffn_up.weight": (FEED_FORWARD, WIDTH),
            f"blk.{i}.ffn_up.bias": (FEED_FORWARD,),
            f"blk.{i}.ffn_down.weight": (WIDTH, FEED_FORWARD),
            f"blk.{i}.ffn_down.bias": (WIDTH,),
        }
    if ranks:
        shapes |= {"cls.weight": (WIDTH, WIDTH), "cls.bias": (WIDTH,)}
        shapes |= {"cls.output.weight": (1, WIDTH), "cls.output.bias": (1,)}
    return shapes


def _add_weights(writer: gguf.GGUFWriter, shapes: dict[str, tuple[int, ...]], seed: int) -> None:
    random = np.random.default_rng(seed)
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32)
        if "norm.weight" in name:
            values = 1.0 + 0.1 * values
        elif name.endswith(".bias"):
            values *= 0.1
        elif "embd" not in name and "types" not in name:
            values *= 2.0 / np.sqrt(shape[-1])
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
