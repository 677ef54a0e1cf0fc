"""The size of the cache beside the vectors of another program.

The vectors are those of fitllm-engine 2.18.0 (`vectors/fit-vectors-v1.json`), Copyright (c) 2026
click6067-ship-it, MIT License. They count only the window of layers that have one; Shepherd keeps
all tokens there (`swa_full`), so that a window is applied here.
"""

from typing import Any

import pytest

from shepherd.backends.llamacpp.native.gguf import GgufHeader
from shepherd.backends.llamacpp.native.sizes import ModelSizes, model_sizes
from shepherd.catalog.local_models import find_local_model
from shepherd.config.llamacpp import LlamaCppSection

F16, Q8 = 1.0, 0.5
"""Bytes of a number beside f16; the vectors' eight bits have no scales, as q8_0 has."""


def plain(layers: int, heads: int, width: int) -> dict[str, Any]:
    """The numbers of a model that is not in the table."""
    return {
        "block_count": layers,
        "attention.head_count": heads,
        "attention.head_count_kv": heads,
        "attention.key_length": width,
        "attention.value_length": width,
    }


def hybrid(layers: int, heads: int, *, values: int) -> dict[str, Any]:
    """The numbers of a Qwen3.5 that is not in the table."""
    states = {"state_size": 128, "group_count": 16, "inner_size": 128 * values, "conv_kernel": 4}
    named = {f"ssm.{key}": number for key, number in states.items()}
    return plain(layers, heads, 256) | named | {"full_attention_interval": 4}


def latent(layers: int) -> dict[str, Any]:
    """The numbers of a model whose keys and values are one vector for all heads."""
    return plain(layers, 1, 576) | {"attention.key_length_mla": 256}


def sizes_of(model: str | dict[str, Any]) -> ModelSizes:
    found = find_local_model(model) if isinstance(model, str) else None
    numbers = found.gguf if found else model
    assert isinstance(numbers, dict)
    values = {f"x.{key}": value for key, value in numbers.items()} | {"general.architecture": "x"}
    return model_sizes(GgufHeader(values, 0, {}), LlamaCppSection())


WINDOWS: dict[str, tuple[int, int]] = {
    "gemma-4-31b": (1024, 6),
    "gemma-4-12b": (1024, 6),
    "gpt-oss-20b": (128, 2),
    "laguna": (512, 4),
    "spark": (512, 4),
}
"""Tokens of the window, and of how many layers one has none."""

TOTALS: list[tuple[str, str | dict[str, Any], int, float, int]] = [
    ("gemma-4-31b", "gemma-4-31b", 262_144, F16, 22_313_697_280),
    ("gemma-4-31b", "gemma-4-31b", 131_072, Q8, 5_788_139_520),
    ("gemma-4-12b", "gemma-4-12b", 262_144, F16, 4_630_511_616),
    ("", "qwen3.6-27b", 131_072, Q8, 4_294_967_296),
    ("", "qwen3.5-35b-a3b", 10_000, F16, 204_800_000),  # Qwen-AgentWorld has its numbers
    ("", plain(80, 8, 128), 262_144, F16, 85_899_345_920),  # Hy3
    ("", "qwen3.8-27b", 262_144, F16, 17_179_869_184),
    ("", hybrid(92, 4, values=128), 262_144, F16, 24_696_061_952),  # Qwen 3.8 2.4T-A95B
    ("laguna", plain(40, 8, 128), 262_144, F16, 10_800_332_800),  # Laguna XS 2.1
    ("laguna", plain(48, 8, 128), 262_144, F16, 12_960_399_360),  # Laguna S 2.1
    ("spark", plain(36, 4, 256), 1_048_576, F16, 38_711_328_768),  # Spark-X2.5-4B
    ("", "granite-4.2-30b", 131_072, F16, 34_359_738_368),
    ("", "minicpm5-2b", 131_072, F16, 5_637_144_576),
    ("", "qwen3.6-35b-a3b", 131_072, F16, 2_684_354_560),  # Nex-N2.5-mini has its numbers
    ("", hybrid(60, 2, values=64), 131_072, F16, 4_026_531_840),  # Nex-N2.5-Pro
]


@pytest.mark.parametrize(("window", "model", "context", "width", "expected"), TOTALS)
def test_the_cache_of_a_context(
    window: str, model: str | dict[str, Any], context: int, width: float, expected: int
) -> None:
    size, period = WINDOWS.get(window, (context, 1))
    cells = sizes_of(model).cells
    kept = (
        cell * (context if (layer + 1) % period == 0 else min(size, context))
        for layer, cell in enumerate(cells)
    )
    assert sum(kept) * width == expected


@pytest.mark.parametrize(("model", "expected"), [("glm-4.7-flash", 54_144), (latent(78), 89_856)])
def test_a_token_of_a_model_with_latent_attention(
    model: str | dict[str, Any], expected: int
) -> None:
    assert sum(sizes_of(model).cells) == expected


def test_a_token_behind_the_window() -> None:
    assert sum(sizes_of("gpt-oss-20b").cells[1::2]) == 24_576


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("qwen3.6-27b", 154_927_104),
        ("qwen3.8-27b", 154_927_104),
        (hybrid(92, 4, values=128), 590_118_912),
        (plain(80, 8, 128), 0),
    ],
)
def test_states(model: str | dict[str, Any], expected: int) -> None:
    """llama.cpp keeps three inputs of the convolution in f32; the vectors have four in bf16."""
    found = find_local_model(model) if isinstance(model, str) else None
    numbers = found.gguf if found else model
    assert isinstance(numbers, dict)
    inner = numbers.get("ssm.inner_size", 0)
    assert isinstance(inner, int)
    states = sizes_of(model).states
    inputs = inner + 2 * 16 * 128
    assert sum(state - 4 * 3 * inputs + 2 * 4 * inputs for state in states if state) == expected
