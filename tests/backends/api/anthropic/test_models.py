"""The list of models, and what a server tells about one."""

from typing import Any

import pytest
from anthropic.types import ModelInfo

from shepherd.backends.api.adapter import ModelEntry
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.messages import JsonObject

ADAPTER = AnthropicAdapter()

OPUS: JsonObject = {
    "id": "claude-opus-5",
    "type": "model",
    "display_name": "Claude Opus 5",
    "created_at": "2026-07-24T00:00:00Z",
    "lifecycle": "active",
    "max_input_tokens": 1_000_000,
    "max_tokens": 128_000,
}
LISTED = "the list of models (max_input_tokens)"


def test_models_with_their_limits() -> None:
    ModelInfo.model_validate(OPUS)
    asked = ADAPTER.models()
    assert (asked.method, asked.path, asked.stream) == ("GET", "/v1/models?limit=1000", False)
    local = {"id": "local.gguf", "meta": {"n_ctx_train": 4096}}
    assert ADAPTER.parse_models({"data": [OPUS, local, {"name": "nameless"}, 3]}) == [
        ModelEntry("claude-opus-5", 1_000_000, 128_000, LISTED),
        ModelEntry("local.gguf", 4096, source="the list of models (meta.n_ctx_train)"),
    ]


@pytest.mark.parametrize("wrong", [None, 3, "x", {}, [None, [], {"id": 3}]])
def test_a_list_that_is_none_has_no_models(wrong: Any) -> None:
    assert ADAPTER.parse_models({"data": wrong}) == []


def test_one_model_is_asked_for_by_name_then_llama_cpps_server_for_its_context() -> None:
    one, props = ADAPTER.probes("org/model 1")
    assert (one.path, props.path) == ("/v1/models/org%2Fmodel%201", "/props")
    entry = ModelEntry("claude-opus-5", 1_000_000, 128_000, LISTED)
    assert ADAPTER.parse_probe(one, OPUS, "claude-opus-5") == entry
    assert ADAPTER.parse_probe(one, {"id": "x"}, "x") is None
    loaded = {"default_generation_settings": {"n_ctx": 8192}}
    assert ADAPTER.parse_probe(props, loaded, "m") == ModelEntry(
        "m", 8192, source="the server's /props"
    )
    for wrong in ({}, {"default_generation_settings": 3}):
        assert ADAPTER.parse_probe(props, wrong, "m") is None
