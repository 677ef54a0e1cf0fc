"""Models with random weights of architectures in the table that need sizes of their own kind."""

from pathlib import Path

from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.tiny import BOS_TEMPLATE, FEED_FORWARD, HEADS, KERNEL, STATE, WIDTH

NARROW, WIDE, EACH = 32, 64, 8
"""Heads of Gemma 4's layers with a window, of the others, and its embeddings of a layer."""

LATENT, ROTATED, HEAD = 64, 32, 32
"""Widths of GLM-4.7-Flash's attention."""

INNER, STATE_HEADS = 2 * WIDTH, 4


def write_gemma4(path: Path) -> Path:
    """Two widths of heads, embeddings of each layer, and a last layer without its own cells."""
    layers, shared = 5, 1
    writer = tiny.new_writer(path, "gemma4", 512, BOS_TEMPLATE, layers)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv([HEADS, 1, HEADS, 1, HEADS])
    writer.add_key_length(WIDE)
    writer.add_value_length(WIDE)
    writer.add_uint32("gemma4.attention.key_length_swa", NARROW)
    writer.add_uint32("gemma4.attention.value_length_swa", NARROW)
    writer.add_uint32("gemma4.attention.shared_kv_layers", shared)
    writer.add_uint32("gemma4.embedding_length_per_layer_input", EACH)
    writer.add_sliding_window(16)
    writer.add_array("gemma4.attention.sliding_window_pattern", [True, False, True, False, True])
    writer.add_rope_dimension_count(WIDE)
    size = tiny.add_vocabulary(writer)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (size, WIDTH),
        "output_norm": (WIDTH,),
        "per_layer_token_embd": (size, EACH * layers),
        "per_layer_model_proj": (EACH * layers, WIDTH),
        "per_layer_proj_norm": (EACH,),
        "rope_freqs": (WIDE // 2,),
    }
    for i in range(layers):
        width, heads = (WIDE, 1) if i % 2 else (NARROW, HEADS)
        name = f"blk.{i}"
        shapes |= tiny.feed_forward(i)
        shapes |= {
            f"{name}.attn_norm": (WIDTH,),
            f"{name}.attn_q": (HEADS * width, WIDTH),
            f"{name}.attn_k": (heads * width, WIDTH),
            f"{name}.attn_v": (heads * width, WIDTH),
            f"{name}.attn_output": (WIDTH, HEADS * width),
            f"{name}.attn_q_norm": (width,),
            f"{name}.attn_k_norm": (width,),
            f"{name}.post_attention_norm": (WIDTH,),
            f"{name}.post_ffw_norm": (WIDTH,),
            f"{name}.inp_gate": (EACH, WIDTH),
            f"{name}.proj": (WIDTH, EACH),
            f"{name}.post_norm": (WIDTH,),
        }
    tiny.add_weights(writer, shapes, 0)
    return path


def write_latent(path: Path) -> Path:
    """A DeepSeek V2, as GLM-4.7-Flash is: one latent vector for the keys and values of a token."""
    layers = 2
    writer = tiny.new_writer(path, "deepseek2", 512, BOS_TEMPLATE, layers)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(LATENT + ROTATED)
    writer.add_value_length(LATENT)
    writer.add_key_length_mla(HEAD + ROTATED)
    writer.add_value_length_mla(HEAD)
    writer.add_q_lora_rank(LATENT)
    writer.add_kv_lora_rank(LATENT)
    writer.add_rope_dimension_count(ROTATED)
    writer.add_leading_dense_block_count(layers)
    writer.add_expert_count(4)
    writer.add_expert_used_count(2)
    writer.add_expert_feed_forward_length(FEED_FORWARD)
    writer.add_expert_shared_count(1)
    size = tiny.add_vocabulary(writer)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (size, WIDTH),
        "output": (size, WIDTH),
        "output_norm": (WIDTH,),
    }
    for i in range(layers):
        name = f"blk.{i}"
        shapes |= tiny.feed_forward(i)
        shapes |= {
            f"{name}.attn_norm": (WIDTH,),
            f"{name}.attn_q_a": (LATENT, WIDTH),
            f"{name}.attn_q_a_norm": (LATENT,),
            f"{name}.attn_q_b": (HEADS * (HEAD + ROTATED), LATENT),
            f"{name}.attn_kv_a_mqa": (LATENT + ROTATED, WIDTH),
            f"{name}.attn_kv_a_norm": (LATENT,),
            f"{name}.attn_k_b": (HEADS, LATENT, HEAD),
            f"{name}.attn_v_b": (HEADS, HEAD, LATENT),
            f"{name}.attn_output": (WIDTH, HEADS * HEAD),
        }
    tiny.add_weights(writer, shapes, 0)
    return path


def write_nemotron(path: Path) -> Path:
    """A Nemotron 3: a layer is a state space, attention, or a mixture of experts."""
    layers, experts = 3, 4
    writer = tiny.new_writer(path, "nemotron_h_moe", 512, BOS_TEMPLATE, layers)
    writer.add_layer_norm_eps(1e-5)
    writer.add_feed_forward_length([0, 0, FEED_FORWARD])
    writer.add_head_count(HEADS)
    writer.add_head_count_kv([0, HEADS, 0])
    writer.add_key_length(WIDTH // HEADS)
    writer.add_value_length(WIDTH // HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_group_count(2)
    writer.add_ssm_time_step_rank(STATE_HEADS)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(2)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(FEED_FORWARD)
    writer.add_expert_shared_feed_forward_length(FEED_FORWARD)
    writer.add_expert_weights_scale(1.0)
    writer.add_expert_group_count(1)
    writer.add_expert_group_used_count(1)
    size = tiny.add_vocabulary(writer)
    inputs = INNER + 2 * 2 * STATE
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (size, WIDTH),
        "output": (size, WIDTH),
        "output_norm": (WIDTH,),
        "blk.0.attn_norm": (WIDTH,),
        "blk.0.ssm_in": (INNER + inputs + STATE_HEADS, WIDTH),
        "blk.0.ssm_conv1d": (inputs, KERNEL),
        "blk.0.ssm_conv1d.bias": (inputs,),
        "blk.0.ssm_dt.bias": (STATE_HEADS,),
        "blk.0.ssm_a.": (STATE_HEADS, 1),
        "blk.0.ssm_d.": (STATE_HEADS, 1),
        "blk.0.ssm_norm": (2, INNER // 2),
        "blk.0.ssm_out": (WIDTH, INNER),
        "blk.2.attn_norm": (WIDTH,),
        "blk.2.ffn_gate_inp": (experts, WIDTH),
        "blk.2.exp_probs_b.bias": (experts,),
        "blk.2.ffn_up_exps": (experts, FEED_FORWARD, WIDTH),
        "blk.2.ffn_down_exps": (experts, WIDTH, FEED_FORWARD),
        "blk.2.ffn_up_shexp": (FEED_FORWARD, WIDTH),
        "blk.2.ffn_down_shexp": (WIDTH, FEED_FORWARD),
    }
    shapes |= tiny.attention(1)
    tiny.add_weights(writer, shapes, 0)
    return path


WRITERS = {"gemma4": write_gemma4, "latent": write_latent, "nemotron": write_nemotron}
