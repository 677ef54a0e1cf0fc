"""Writes a checkpoint as GGUF: `python -m training.export [--checkpoint PT] [--out GGUF]`."""

import argparse
import json
from pathlib import Path
from typing import Any

import gguf
import torch

from training import tokenizer as vocabulary
from training.model import Shape
from training.train import CHECKPOINT, RUN

HERE = Path(__file__).parent
OUT = HERE.parent / "shepherd" / "models" / "pup.gguf"
TEMPLATE = HERE / "template.jinja"
DESCRIPTION = "The small model built into Shepherd: its tools, small talk, honest refusals."
NAMES = {
    "attn_norm.scale": "attn_norm",
    "ffn_norm.scale": "ffn_norm",
    "q_norm.scale": "attn_q_norm",
    "k_norm.scale": "attn_k_norm",
    "q.weight": "attn_q",
    "k.weight": "attn_k",
    "v.weight": "attn_v",
    "out.weight": "attn_output",
    "gate.weight": "ffn_gate",
    "up.weight": "ffn_up",
    "down.weight": "ffn_down",
}
Q8 = gguf.GGMLQuantizationType.Q8_0


def _describe(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name("Pup")
    writer.add_description(DESCRIPTION)
    writer.add_license("Apache-2.0")
    writer.add_sampling_temp(0.0)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)


def add_vocabulary(writer: gguf.GGUFWriter) -> None:
    """Pup's tokens and template."""
    model = json.loads(vocabulary.load().to_str())["model"]
    ids: dict[str, int] = model["vocab"]
    tokens = sorted(ids, key=lambda token: ids[token])
    kinds = [_kind(token) for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_eos_token_id(ids[vocabulary.END])
    writer.add_pad_token_id(ids[vocabulary.PAD])
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE.read_text().replace("\n", ""))


def _kind(token: str) -> gguf.TokenType:
    if token in vocabulary.CONTROL:
        return gguf.TokenType.CONTROL
    user = token in vocabulary.SPECIAL
    return gguf.TokenType.USER_DEFINED if user else gguf.TokenType.NORMAL


def _tensors(writer: gguf.GGUFWriter, weights: dict[str, torch.Tensor]) -> None:
    for name, weight in weights.items():
        array = weight.float().numpy()
        if array.ndim == 2:
            writer.add_tensor(_gguf_name(name), gguf.quants.quantize(array, Q8), raw_dtype=Q8)
        else:
            writer.add_tensor(_gguf_name(name), array)


def _gguf_name(name: str) -> str:
    if name == "embedding.weight":
        return "token_embd.weight"
    if name == "norm.scale":
        return "output_norm.weight"
    _, block, rest = name.split(".", 2)
    return f"blk.{block}.{NAMES[rest]}.weight"


def export(checkpoint: Path, out: Path) -> int:
    """Writes `out` whole or not at all; returns its size in bytes."""
    state: dict[str, Any] = torch.load(checkpoint)
    temporary = out.with_suffix(".tmp")
    writer = gguf.GGUFWriter(temporary, "qwen3")
    _describe(writer, Shape(vocabulary=vocabulary.load().get_vocab_size()))
    add_vocabulary(writer)
    _tensors(writer, state["model"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    temporary.replace(out)
    return out.stat().st_size


def main() -> None:
    """Reads the arguments and exports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=RUN / CHECKPOINT)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    print(f"{args.out}: {export(args.checkpoint, args.out) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
