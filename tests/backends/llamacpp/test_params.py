import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.native import flash
from shepherd.backends.llamacpp.native import params as params_module
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import (
    FLASH_AUTO,
    FLASH_OFF,
    FLASH_ON,
    GPU_LAYERS_VARIABLE,
    TINY_MODEL,
    Attention,
    ModelTraits,
    attention,
    context_params,
    default_threads,
    gpu_layers,
    gpu_notice,
    model_params,
    usable_cores,
)
from shepherd.backends.llamacpp.native.sizes import model_sizes
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ConfigError, InvalidRequestError
from shepherd.sampling import Sampling
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.support import PUP, ask, conversation, loaded, settings
from tests.backends.llamacpp.test_sizes import logged

BIG = 1 << 40
TRAITS = ModelTraits(BIG, heads=32, window=0, trained_context=4096)


def test_the_environment_names_gpu_layers_before_the_settings() -> None:
    section = LlamaCppSection(gpu_layers=7)
    assert gpu_layers(section, {}) == 7
    assert gpu_layers(section, {GPU_LAYERS_VARIABLE: ""}) == 7
    assert gpu_layers(section, {GPU_LAYERS_VARIABLE: "0"}) == 0
    assert gpu_layers(LlamaCppSection(), {}) == -1


@pytest.mark.parametrize("value", ["many", "-2", "1.5", "9999999"])
def test_a_bad_environment_variable_is_named(value: str) -> None:
    with pytest.raises(ConfigError, match=GPU_LAYERS_VARIABLE):
        gpu_layers(LlamaCppSection(), {GPU_LAYERS_VARIABLE: value})


def test_tensor_parallel_splits_rows_and_pipeline_parallel_layers() -> None:
    assert model_params(LlamaCppSection(), {}).split_mode == 1
    assert model_params(LlamaCppSection(pipeline_parallel=2), {}).split_mode == 1
    assert model_params(LlamaCppSection(tensor_parallel=2), {}).split_mode == 2


def test_gpus_that_llamacpp_can_not_use_are_told() -> None:
    shared = gpu_notice(LlamaCppSection(pipeline_parallel=2))
    assert gpu_notice(LlamaCppSection()) is None
    if bindings().llama_supports_gpu_offload():
        assert shared is None
    else:
        assert shared
        assert "2 GPUs" in shared


def test_context_settings_arrive() -> None:
    section = LlamaCppSection(
        context_size=1024, n_batch=64, threads=3, flash_attention="on", cache_type_k="q8_0"
    )
    params = context_params(section, 4, TRAITS)
    assert (params.n_ctx, params.n_batch, params.n_ubatch) == (1024, 64, 64)
    assert (params.n_threads, params.n_threads_batch, params.n_seq_max) == (3, 3, 4)
    assert (params.flash_attn_type, params.type_k, params.type_v) == (1, 8, 1)
    assert params.kv_unified


def test_threads_are_the_cores_but_one_for_a_tiny_model() -> None:
    assert default_threads(BIG) == usable_cores() >= 1
    assert default_threads(PUP.stat().st_size) == 1


def chosen(
    weights: int = 4 * 1024**3, heads: int = 32, window: int = 0, **values: Any
) -> Attention:
    return attention(LlamaCppSection(**values), ModelTraits(weights, heads, window, 131_072))


def test_flash_attention_is_off_on_a_cpu_unless_a_model_needs_it() -> None:
    assert chosen(context_size=8192) == (FLASH_OFF, 512)
    assert chosen(context_size=8192, window=1024) == (FLASH_AUTO, 512)
    assert chosen(context_size=8192, cache_type_v="q8_0") == (FLASH_AUTO, 512)
    assert chosen(context_size=8192, flash_attention="on") == (FLASH_ON, 512)
    assert chosen(flash_attention="off", ubatch=256) == (FLASH_OFF, 256)


@pytest.mark.parametrize("faster", [True, False])
def test_a_cpu_takes_the_attention_that_was_measured(
    monkeypatch: pytest.MonkeyPatch, *, faster: bool
) -> None:
    def measured(_head: int, _group: int, conversations: int) -> bool:
        return faster and conversations == 1

    monkeypatch.setattr(params_module, "flash_is_faster", measured)
    known = ModelTraits(BIG, 32, 0, 4096, head=128, group=4)
    assert attention(LlamaCppSection(), known).flash == (FLASH_AUTO if faster else FLASH_OFF)
    assert attention(LlamaCppSection(parallel=2), known).flash == FLASH_OFF
    tiny_one = replace(known, weights=TINY_MODEL - 1)
    assert attention(LlamaCppSection(), tiny_one).flash == FLASH_OFF
    assert attention(LlamaCppSection(parallel=2), tiny_one).flash == FLASH_AUTO


@pytest.mark.parametrize(
    ("flash_seconds", "masked", "wins_from"), [(0.9, 0.5, 1), (1.9, 0.0, 2), (2.5, 0.2, 3)]
)
def test_flash_attention_wins_where_conversations_share_a_cache(
    monkeypatch: pytest.MonkeyPatch, flash_seconds: float, masked: float, wins_from: int
) -> None:
    """It passes over the tokens of others; without it, their scores are computed, too."""

    def measured(_head: int, _group: int) -> list[tuple[float, float]]:
        return [(each, each) for each in (1.0, flash_seconds, masked)]

    monkeypatch.setattr(flash, "attention_seconds", measured)
    wins = [flash.flash_is_faster(64, 2, conversations) for conversations in (1, 2, 3, 4)]
    assert wins == [conversations >= wins_from for conversations in (1, 2, 3, 4)]


def test_the_kind_of_attention_is_measured_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(flash, "CELLS", 256)
    flash.attention_seconds.cache_clear()
    first = flash.flash_is_faster(64, 2, 1)
    (file,) = (tmp_path / "shepherd" / "tried_models").iterdir()
    plain, flashing, masked = json.loads(file.read_text())
    assert masked[1] < flashing[1]
    monkeypatch.setattr(flash, "seconds", None)  # no more measurements
    flash.attention_seconds.cache_clear()
    assert flash.flash_is_faster(64, 2, 1) is first
    file.write_text(json.dumps([flashing, plain, masked]))
    flash.attention_seconds.cache_clear()
    assert flash.flash_is_faster(64, 2, 1) is not first
    flash.attention_seconds.cache_clear()


def test_a_long_context_has_smaller_batches_then_flash_attention() -> None:
    """The scores of a batch take at most a quarter of the weights, or 256 MiB."""
    assert chosen(context_size=32_768) == (FLASH_OFF, 256)
    assert chosen(context_size=65_536) == (FLASH_OFF, 128)
    assert chosen() == (FLASH_AUTO, 512)
    assert chosen(context_size=32_768, ubatch=512) == (FLASH_AUTO, 512)
    assert chosen(weights=1, heads=9, context_size=8192) == (FLASH_OFF, 512)
    assert chosen(weights=1, heads=9) == (FLASH_AUTO, 512)


def test_the_headers_estimate_uses_the_same_attention() -> None:
    model = NativeModel(PUP, model_params(settings(), {}))
    try:
        header = model_sizes(check_model_file(PUP), settings()).traits
        assert (header.heads, header.window) == (model.traits.heads, model.traits.window)
        assert (header.head, header.group) == (model.traits.head, model.traits.group) == (64, 2)
        assert header.trained_context == model.traits.trained_context
        assert header.weights == pytest.approx(model.traits.weights, rel=0.01)
    finally:
        model.close()


async def test_experts_in_the_memory_of_the_cpu_give_the_same_answer(moe: Path) -> None:
    """llama.cpp tells which tensors it was told to put there."""
    texts: list[str] = []
    for layers in (0, 1, 100_000):
        with logged() as lines:
            async with loaded(moe, cpu_moe=layers) as backend:
                texts.append(await ask(backend, conversation(), "Count to ten.", max_tokens=20))
        moved = {line.split()[1] for line in lines if "buffer type overridden" in line}
        assert moved == {
            f"blk.{layer}.ffn_{name}_exps.weight"
            for layer in range(min(layers, tiny.LAYERS))
            for name in ("gate", "up", "down")
        }
    assert texts[0]
    assert texts[0] == texts[1] == texts[2]


def test_the_size_of_experts_comes_from_the_header(moe: Path, llama: Path) -> None:
    sizes = model_sizes(check_model_file(moe), settings())
    tensor = 4 * 4 * tiny.FEED_FORWARD * tiny.WIDTH  # four experts in full width
    assert sizes.expert_tensor == tensor
    assert sizes.experts == (3 * tensor,) * tiny.LAYERS
    assert not any(model_sizes(check_model_file(llama), settings()).experts)


async def test_bad_default_sampling_is_refused_before_loading() -> None:
    with pytest.raises(InvalidRequestError, match="top_p"):
        await LlamaCppBackend.load(PUP, settings(), Sampling(top_p=2.0))
