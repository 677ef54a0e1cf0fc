"""Models with random weights, a few hundred kilobytes each, written in milliseconds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
from numpy.typing import NDArray

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
WIDTH, HEADS, FEED_FORWARD, LAYERS = 64, 2, 96, 2
INNER, STATE, RANK, KERNEL = 2 * WIDTH, 16, 4, 4

CONTROLS = ["<|im_start|>", "<|im_end|>", "<|tool|>"]
MARKERS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "\n\n"]

BOS_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_llama(
    path: Path,
    *,
    template: str = BOS_TEMPLATE,
    context: int = 512,
    seed: int = 0,
    bos: bool = True,
    infill: Mapping[str, int] | None = None,
    experts: int = 0,
    layers: int = LAYERS,
    deltas: Mapping[str, NDArray[np.float32]] | None = None,
    vocabulary: Callable[[gguf.GGUFWriter], int] | None = None,
) -> Path:
    """A llama whose SentencePiece vocabulary wants a blank before words and, with `bos`, BOS.

    `infill` are the tokens for texts around a gap. Of `experts` two are used for each token.
    `deltas` are added to the weights of these names. `vocabulary` adds another one and gives its
    size.
    """
    writer = new_writer(path, "llama", context, template, layers)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    size = vocabulary(writer) if vocabulary else add_vocabulary(writer, bos=bos)
    for name, token in (infill or {}).items():
        writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", token)
    shapes = {"token_embd": (size, WIDTH), "output": (size, WIDTH), "output_norm": (WIDTH,)}
    for i in range(layers):
        shapes |= attention(i) | feed_forward(i, experts)
    add_weights(writer, shapes, seed, deltas or {})
    return path


def write_lora(
    path: Path,
    *,
    architecture: str = "llama",
    width: int = WIDTH,
    rank: int = 4,
    alpha: float = 8.0,
    seed: int = 1,
    **values: str,
) -> tuple[Path, dict[str, NDArray[np.float32]]]:
    """An adapter for the queries and outputs of the attention, and what it adds to their weights.

    `values` are put over the header's `general_type` and `adapter_type`.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("general.type", values.get("general_type", "adapter"))
    writer.add_string("adapter.type", values.get("adapter_type", "lora"))
    writer.add_float32("adapter.lora.alpha", alpha)
    random = np.random.default_rng(seed)
    deltas: dict[str, NDArray[np.float32]] = {}
    for i in range(LAYERS):
        for name in (f"blk.{i}.attn_q", f"blk.{i}.attn_output"):
            a = random.standard_normal((rank, width), dtype=np.float32)
            b = random.standard_normal((width, rank), dtype=np.float32) / width
            writer.add_tensor(f"{name}.weight.lora_a", a)
            writer.add_tensor(f"{name}.weight.lora_b", b)
            deltas[name] = (alpha / rank * (b @ a)).astype(np.float32)
    _write(writer)
    return path, deltas


def write_gemma(path: Path, *, window: int = 16, context: int = 512, seed: int = 0) -> Path:
    """A Gemma 3 with a sliding window in every layer but each sixth."""
    writer = new_writer(path, "gemma3", context, BOS_TEMPLATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(WIDTH // HEADS)
    writer.add_value_length(WIDTH // HEADS)
    writer.add_sliding_window(window)
    size = add_vocabulary(writer)
    shapes = {"token_embd": (size, WIDTH), "output_norm": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= attention(i) | feed_forward(i)
        shapes |= {
            f"blk.{i}.post_attention_norm": (WIDTH,),
            f"blk.{i}.post_ffw_norm": (WIDTH,),
            f"blk.{i}.attn_q_norm": (WIDTH // HEADS,),
            f"blk.{i}.attn_k_norm": (WIDTH // HEADS,),
        }
    add_weights(writer, shapes, seed)
    return path


def write_qwen(path: Path, *, context: int = 512, seed: int = 0) -> Path:
    """A Qwen2-VL, whose images take fewer positions than tokens (M-RoPE)."""
    writer = new_writer(path, "qwen2vl", context, BOS_TEMPLATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    half = WIDTH // HEADS // 2
    writer.add_rope_dimension_sections([half // 2, half // 4, half // 4, 0])
    size = add_vocabulary(writer)
    shapes = {"token_embd": (size, WIDTH), "output": (size, WIDTH), "output_norm": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= attention(i) | feed_forward(i)
        shapes |= {f"blk.{i}.attn_{name}.bias": (WIDTH,) for name in "qkv"}
    add_weights(writer, shapes, seed)
    return path


def write_mamba(path: Path, *, context: int = 512, seed: int = 0) -> Path:
    """A recurrent model, whose memory can't forget a part of a sequence."""
    writer = new_writer(path, "mamba", context, BOS_TEMPLATE)
    writer.add_head_count(0)
    _add_state_space(writer)
    size = add_vocabulary(writer)
    shapes = {"token_embd": (size, WIDTH), "output_norm": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= _state_space(i)
    add_weights(writer, shapes, seed)
    return path


def write_hybrid(path: Path, *, context: int = 512, seed: int = 0) -> Path:
    """A Jamba: layers with a state and layers with attention take turns."""
    writer = new_writer(path, "jamba", context, BOS_TEMPLATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv([0, HEADS])
    _add_state_space(writer)
    size = add_vocabulary(writer)
    shapes = {"token_embd": (size, WIDTH), "output_norm": (WIDTH,)}
    shapes |= _state_space(0) | feed_forward(0) | attention(1) | feed_forward(1)
    shapes |= {
        "blk.0.ssm_dt_norm": (RANK,),
        "blk.0.ssm_b_norm": (STATE,),
        "blk.0.ssm_c_norm": (STATE,),
    }
    add_weights(writer, shapes, seed)
    return path


def write_plamo2(path: Path, *, context: int = 512, seed: int = 0) -> Path:
    """A PLaMo 2: a layer with a state, then one of attention."""
    writer = new_writer(path, "plamo2", context, BOS_TEMPLATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv([0, HEADS])
    _add_state_space(writer)
    writer.add_ssm_group_count(0)
    size = add_vocabulary(writer)
    step, head = 64, WIDTH // HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (size, WIDTH), "output_norm": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.attn_norm": (WIDTH,),
            f"blk.{i}.post_attention_norm.": (WIDTH,),
            f"blk.{i}.ffn_norm": (WIDTH,),
            f"blk.{i}.ffn_up": (2 * FEED_FORWARD, WIDTH),
            f"blk.{i}.ffn_down": (WIDTH, FEED_FORWARD),
            f"blk.{i}.post_ffw_norm.": (WIDTH,),
        }
    shapes |= {
        "blk.0.ssm_in": (2 * INNER, WIDTH),
        "blk.0.ssm_conv1d": (INNER, KERNEL),
        "blk.0.ssm_x": (step + 2 * STATE, INNER),
        "blk.0.ssm_dt": (RANK, step),
        "blk.0.ssm_dt.bias": (RANK,),
        "blk.0.ssm_a.": (RANK,),
        "blk.0.ssm_d.": (RANK,),
        "blk.0.ssm_out": (WIDTH, INNER),
        "blk.0.ssm_dt_norm.": (step,),
        "blk.0.ssm_b_norm.": (STATE,),
        "blk.0.ssm_c_norm.": (STATE,),
        "blk.1.attn_qkv": (3 * WIDTH, WIDTH),
        "blk.1.attn_q_norm": (HEADS, head),
        "blk.1.attn_k_norm": (HEADS, head),
        "blk.1.attn_output": (WIDTH, WIDTH),
    }
    add_weights(writer, shapes, seed)
    return path


def write_lfm2(path: Path, *, context: int = 512, seed: int = 0) -> Path:
    """An LFM2, whose states (of convolutions) can forget the last tokens."""
    writer = new_writer(path, "lfm2", context, BOS_TEMPLATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv([0, HEADS])
    writer.add_shortconv_l_cache(KERNEL)
    size = add_vocabulary(writer)
    shapes = {"token_embd": (size, WIDTH), "token_embd_norm": (WIDTH,)}
    shapes |= feed_forward(0) | attention(1) | feed_forward(1)
    shapes |= {
        "blk.0.attn_norm": (WIDTH,),
        "blk.0.shortconv.conv": (WIDTH, KERNEL),
        "blk.0.shortconv.in_proj": (3 * WIDTH, WIDTH),
        "blk.0.shortconv.out_proj": (WIDTH, WIDTH),
        "blk.1.attn_q_norm": (WIDTH // HEADS,),
        "blk.1.attn_k_norm": (WIDTH // HEADS,),
    }
    add_weights(writer, shapes, seed)
    return path


def write_qwen35(path: Path, *, context: int = 512, seed: int = 0, mtp: bool = False) -> Path:
    """A Qwen3.5, whose states (of gated delta nets) can forget the last tokens.

    With `mtp` a layer behind it predicts the token after the next one.
    """
    layers = LAYERS + mtp
    writer = new_writer(path, "qwen35", context, BOS_TEMPLATE, layers)
    if mtp:
        writer.add_nextn_predict_layers(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(WIDTH // HEADS)
    writer.add_value_length(WIDTH // HEADS)
    half = WIDTH // HEADS // 2
    writer.add_rope_dimension_sections([half // 2, half // 4, half // 4, 0])
    writer.add_full_attention_interval(2)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(WIDTH)
    writer.add_ssm_state_size(WIDTH // HEADS)
    writer.add_ssm_time_step_rank(HEADS)
    writer.add_ssm_group_count(HEADS)
    size = add_vocabulary(writer)
    shapes = {"token_embd": (size, WIDTH), "output_norm": (WIDTH,)}
    for i in range(layers):
        shapes |= feed_forward(i)
        del shapes[f"blk.{i}.ffn_norm"]
        shapes |= {f"blk.{i}.attn_norm": (WIDTH,), f"blk.{i}.post_attention_norm": (WIDTH,)}
    shapes |= {
        "blk.0.attn_qkv": (3 * WIDTH, WIDTH),
        "blk.0.attn_gate": (WIDTH, WIDTH),
        "blk.0.ssm_conv1d": (3 * WIDTH, KERNEL),
        "blk.0.ssm_dt.bias": (HEADS,),
        "blk.0.ssm_a.": (HEADS,),
        "blk.0.ssm_beta": (HEADS, WIDTH),
        "blk.0.ssm_alpha": (HEADS, WIDTH),
        "blk.0.ssm_norm": (WIDTH // HEADS,),
        "blk.0.ssm_out": (WIDTH, WIDTH),
    }
    for i in range(1, layers):
        shapes |= attention(i) | {
            f"blk.{i}.attn_q": (2 * WIDTH, WIDTH),
            f"blk.{i}.attn_q_norm": (WIDTH // HEADS,),
            f"blk.{i}.attn_k_norm": (WIDTH // HEADS,),
        }
    if mtp:
        shapes |= {
            f"blk.{LAYERS}.nextn.eh_proj": (WIDTH, 2 * WIDTH),
            f"blk.{LAYERS}.nextn.enorm": (WIDTH,),
            f"blk.{LAYERS}.nextn.hnorm": (WIDTH,),
        }
    add_weights(writer, shapes, seed)
    return path


def new_writer(
    path: Path, architecture: str, context: int, template: str, layers: int = LAYERS
) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FEED_FORWARD if architecture != "mamba" else 0)
    writer.add_layer_norm_rms_eps(1e-5)
    if template:
        writer.add_chat_template(template)
    return writer


def add_vocabulary(writer: gguf.GGUFWriter, *, bos: bool = True) -> int:
    tokens = ["<unk>", "<s>", "</s>", *CONTROLS, *MARKERS]
    types = [UNKNOWN, CONTROL, CONTROL, *([CONTROL] * len(CONTROLS))]
    types += [USER_DEFINED] * len(MARKERS)
    scores = [0.0] * len(tokens)
    for byte in range(256):
        tokens.append(f"<0x{byte:02X}>")
        types.append(BYTE)
        scores.append(0.0)
    letters = [chr(c) for c in range(ord("!"), ord("~") + 1)]
    words = ["▁", "he", "ll", "hell", "hello", "▁hello", "▁w", "▁the", "in", "▁in", "é", "日本"]
    for rank, text in enumerate([*letters, *words]):
        tokens.append(text)
        types.append(NORMAL)
        scores.append(-float(rank))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(bos)
    writer.add_add_space_prefix(True)
    return len(tokens)


def attention(i: int) -> dict[str, tuple[int, ...]]:
    return {
        f"blk.{i}.attn_norm": (WIDTH,),
        f"blk.{i}.attn_q": (WIDTH, WIDTH),
        f"blk.{i}.attn_k": (WIDTH, WIDTH),
        f"blk.{i}.attn_v": (WIDTH, WIDTH),
        f"blk.{i}.attn_output": (WIDTH, WIDTH),
    }


def feed_forward(i: int, experts: int = 0) -> dict[str, tuple[int, ...]]:
    norm: dict[str, tuple[int, ...]] = {f"blk.{i}.ffn_norm": (WIDTH,)}
    if not experts:
        return norm | {
            f"blk.{i}.ffn_gate": (FEED_FORWARD, WIDTH),
            f"blk.{i}.ffn_up": (FEED_FORWARD, WIDTH),
            f"blk.{i}.ffn_down": (WIDTH, FEED_FORWARD),
        }
    return norm | {
        f"blk.{i}.ffn_gate_inp": (experts, WIDTH),
        f"blk.{i}.ffn_gate_exps": (experts, FEED_FORWARD, WIDTH),
        f"blk.{i}.ffn_up_exps": (experts, FEED_FORWARD, WIDTH),
        f"blk.{i}.ffn_down_exps": (experts, WIDTH, FEED_FORWARD),
    }


def _add_state_space(writer: gguf.GGUFWriter) -> None:
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)


def _state_space(i: int) -> dict[str, tuple[int, ...]]:
    return {
        f"blk.{i}.attn_norm": (WIDTH,),
        f"blk.{i}.ssm_in": (2 * INNER, WIDTH),
        f"blk.{i}.ssm_conv1d": (INNER, KERNEL),
        f"blk.{i}.ssm_conv1d.bias": (INNER,),
        f"blk.{i}.ssm_x": (RANK + 2 * STATE, INNER),
        f"blk.{i}.ssm_dt": (INNER, RANK),
        f"blk.{i}.ssm_dt.bias": (INNER,),
        f"blk.{i}.ssm_a.": (INNER, STATE),
        f"blk.{i}.ssm_d.": (INNER,),
        f"blk.{i}.ssm_out": (WIDTH, INNER),
    }


def add_weights(
    writer: gguf.GGUFWriter,
    shapes: Mapping[str, tuple[int, ...]],
    seed: int,
    deltas: Mapping[str, NDArray[np.float32]] = MappingProxyType({}),
) -> None:
    """A name that ends in a dot or in `.bias` is complete; others are a `.weight`."""
    random = np.random.default_rng(seed)
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32)
        if name.endswith("ssm_a."):
            values = -np.abs(values) - 0.1
        elif "norm" in name:
            values = 1.0 + 0.1 * values
        elif name != "token_embd":
            values *= 2.0 / np.sqrt(shape[-1])
        values += deltas.get(name, 0.0)
        full = name if name.endswith(".bias") else f"{name}.weight"
        writer.add_tensor(name[:-1] if name.endswith(".") else full, values.astype(np.float32))
    _write(writer)


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
