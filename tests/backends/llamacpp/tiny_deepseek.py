"""A DeepSeek V4 with random weights: its memory copies only whole sequences."""

from pathlib import Path

from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.tiny import BOS_TEMPLATE, WIDTH

LAYERS, HEADS, HEAD, RANK = 3, 2, 128, 32
EXPERTS, USED, FEED_FORWARD = 4, 2, 32
COPIES, GROUPS = 4, 2
INDEX_HEADS, INDEX_HEAD = 2, 128
RATIOS = (4, 128, 0)
"""How many tokens become one key, by layer; 0 for all."""


def write_deepseek4(path: Path, *, context: int = 512, window: int = 16, seed: int = 0) -> Path:
    """The model; without image tokens, hashed layers and multi-token prediction."""
    writer = tiny.new_writer(path, "deepseek4", context, BOS_TEMPLATE, LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_dimension_count(HEAD // 2)
    writer.add_q_lora_rank(RANK)
    writer.add_sliding_window(window)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED)
    numbers = {
        "expert_feed_forward_length": FEED_FORWARD,
        "expert_shared_count": 1,
        "expert_gating_func": 4,
        "attention.indexer.head_count": INDEX_HEADS,
        "attention.indexer.key_length": INDEX_HEAD,
        "attention.indexer.top_k": 8,
        "attention.output_group_count": GROUPS,
        "attention.output_lora_rank": RANK,
        "hyper_connection.count": COPIES,
        "hyper_connection.sinkhorn_iterations": 2,
        "hash_layer_count": 0,
    }
    for key, number in numbers.items():
        writer.add_uint32(f"deepseek4.{key}", number)
    values = {
        "expert_weights_scale": 1.0,
        "swiglu_clamp_exp": 7.0,
        "attention.compress_rope_freq_base": 10_000.0,
        "hyper_connection.epsilon": 1e-6,
    }
    for key, value in values.items():
        writer.add_float32(f"deepseek4.{key}", value)
    writer.add_bool("deepseek4.expert_weights_norm", True)
    writer.add_array("deepseek4.attention.compress_ratios", list(RATIOS))
    size = tiny.add_vocabulary(writer)
    wide = COPIES * WIDTH
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (size, WIDTH),
        "output": (size, WIDTH),
        "output_norm": (WIDTH,),
        "output_hc_fn": (COPIES, wide),
        "output_hc_base": (COPIES,),
        "output_hc_scale": (1,),
    }
    for i, ratio in enumerate(RATIOS):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in _layer(ratio).items()}
    tiny.add_weights(writer, shapes, seed)
    return path


def _layer(ratio: int) -> dict[str, tuple[int, ...]]:
    """The weights of a layer, by their names."""
    mixes = (2 + COPIES) * COPIES
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (WIDTH,),
        "attn_sinks": (HEADS,),
        "attn_q_a": (RANK, WIDTH),
        "attn_q_a_norm": (RANK,),
        "attn_q_b": (HEADS * HEAD, RANK),
        "attn_kv": (HEAD, WIDTH),
        "attn_kv_a_norm": (HEAD,),
        "attn_output_a": (GROUPS * RANK, HEADS * HEAD // GROUPS),
        "attn_output_b": (WIDTH, GROUPS * RANK),
        "ffn_gate_inp": (EXPERTS, WIDTH),
        "exp_probs_b.bias": (EXPERTS,),
        "ffn_norm": (WIDTH,),
        "ffn_gate_exps": (EXPERTS, FEED_FORWARD, WIDTH),
        "ffn_down_exps": (EXPERTS, WIDTH, FEED_FORWARD),
        "ffn_up_exps": (EXPERTS, FEED_FORWARD, WIDTH),
        "ffn_gate_shexp": (FEED_FORWARD, WIDTH),
        "ffn_down_shexp": (WIDTH, FEED_FORWARD),
        "ffn_up_shexp": (FEED_FORWARD, WIDTH),
    }
    for part in ("attn", "ffn"):
        shapes |= {
            f"hc_{part}_fn": (mixes, COPIES * WIDTH),
            f"hc_{part}_base": (mixes,),
            f"hc_{part}_scale": (3,),
        }
    if ratio:
        shapes |= _compressor("attn_compressor", HEAD, ratio, 2 if ratio == 4 else 1)
    if ratio == 4:
        shapes |= {
            "indexer.proj": (INDEX_HEADS, WIDTH),
            "indexer.attn_q_b": (INDEX_HEADS * INDEX_HEAD, RANK),
        }
        shapes |= _compressor("indexer_compressor", INDEX_HEAD, ratio, 2)
    return shapes


def _compressor(name: str, head: int, ratio: int, copies: int) -> dict[str, tuple[int, ...]]:
    """What makes one key of `ratio` tokens."""
    return {
        f"{name}_kv": (copies * head, WIDTH),
        f"{name}_gate": (copies * head, WIDTH),
        f"{name}_ape": (ratio, copies * head),
        f"{name}_norm": (head,),
    }
