import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.params import (
    GPU_LAYERS_VARIABLE,
    context_params,
    default_threads,
    flash_attention,
    gpu_layers,
    gpu_notice,
    model_params,
    usable_cores,
)
from shepherd.config.sections import LlamaCppSection
from shepherd.errors import ConfigError, InvalidRequestError
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import PUP, settings

BIG = 1 << 40


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
    params = context_params(section, 4, BIG)
    assert (params.n_ctx, params.n_batch, params.n_ubatch) == (1024, 64, 64)
    assert (params.n_threads, params.n_threads_batch, params.n_seq_max) == (3, 3, 4)
    assert (params.flash_attn_type, params.type_k, params.type_v) == (1, 8, 1)
    assert params.kv_unified


def test_threads_are_the_cores_but_one_for_a_tiny_model() -> None:
    assert default_threads(BIG) == usable_cores() >= 1
    assert default_threads(PUP.stat().st_size) == 1


def test_flash_attention_is_off_only_where_it_costs() -> None:
    tiny = PUP.stat().st_size
    assert flash_attention(LlamaCppSection(), BIG) == -1
    assert flash_attention(LlamaCppSection(), tiny) == 0
    assert flash_attention(LlamaCppSection(cache_type_v="q8_0"), tiny) == -1
    assert flash_attention(LlamaCppSection(flash_attention="on"), tiny) == 1


async def test_bad_default_sampling_is_refused_before_loading() -> None:
    with pytest.raises(InvalidRequestError, match="top_p"):
        await LlamaCppBackend.load(PUP, settings(), Sampling(top_p=2.0))
