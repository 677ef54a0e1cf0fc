"""What is known of models and servers by their names, and what servers tell."""

import pytest

from shepherd.backends.api.adapter import ModelEntry
from shepherd.backends.api.openai.chat_adapter import OpenAIChatAdapter
from shepherd.backends.api.openai.dialects import (
    AZURE,
    DEEPSEEK,
    EXTENDED,
    MISTRAL,
    OPENAI,
    OPENROUTER,
    PLAIN,
    XAI,
    Dialect,
    dialect_of,
    gpt_version,
    needs_responses,
    parse_models,
    reasons,
)
from shepherd.backends.connect import adapter_for
from shepherd.messages import JsonObject


@pytest.mark.parametrize(
    ("model", "reasoning", "responses"),
    [
        ("gpt-4o", False, False),
        ("gpt-4.1-mini", False, False),
        ("gpt-3.5-turbo", False, False),
        ("gpt-5", True, False),
        ("gpt-5-chat-latest", False, False),
        ("gpt-5.1-2025-11-13", True, False),
        ("gpt-5-codex", True, True),
        ("gpt-5-pro", True, True),
        ("gpt-5.2-pro-2025-12-11", True, True),
        ("gpt-5.4", True, True),
        ("gpt-6-astra", True, True),
        ("o1", True, False),
        ("o1-pro", True, True),
        ("o3-pro-2025-06-10", True, True),
        ("o3-deep-research", True, True),
        ("o4-mini", True, False),
        ("codex-mini-latest", True, True),
        ("computer-use-preview", True, True),
        ("openai/gpt-5.4", True, False),
        ("deepseek-v4-pro", False, False),
        ("gemini-3-pro", False, False),
        ("gpt-oss-20b", False, False),
        ("mistralai/o3-clone", False, False),
    ],
)
def test_openai_s_models_by_their_names(model: str, *, reasoning: bool, responses: bool) -> None:
    assert (reasons(model), needs_responses(model)) == (reasoning, responses)


def test_versions() -> None:
    assert gpt_version("gpt-5.1-mini") == (5, 1)
    assert gpt_version("gpt-35-turbo") == gpt_version("o3") == (0, 0)


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("https://api.openai.com/v1", OPENAI),
        ("https://mine.openai.azure.com/openai/deployments/x", AZURE),
        ("https://api.deepseek.com", DEEPSEEK),
        ("https://api.mistral.ai/v1", MISTRAL),
        ("https://openrouter.ai/api/v1", OPENROUTER),
        ("https://api.x.ai/v1", XAI),
        ("https://api.together.xyz/v1", PLAIN),
        ("https://max.ai/v1", PLAIN),
        ("http://localhost:8080/v1", EXTENDED),
        ("http://127.0.0.1:1234/v1", EXTENDED),
        ("http://192.168.1.5:8000/v1", EXTENDED),
        ("http://[::1]:8000/v1", EXTENDED),
        ("http://gpu.local/v1", EXTENDED),
        ("http://8.8.8.8/v1", PLAIN),
        ("", PLAIN),
    ],
)
def test_servers_by_their_addresses(url: str, dialect: Dialect) -> None:
    assert dialect_of(url) is dialect


@pytest.mark.parametrize(
    ("told", "size", "limit"),
    [
        ({}, 0, 0),
        ({"max_model_len": 4096}, 4096, 0),
        (
            {"max_model_len": None, "context_window": 131072, "max_completion_tokens": 99},
            131072,
            99,
        ),
        ({"meta": {"n_ctx": 8192, "n_ctx_train": 40960}}, 8192, 0),
        ({"meta": {"n_ctx_train": 40960}}, 40960, 0),
        ({"context_length": 0, "meta": None}, 0, 0),
        ({"max_context_length": 32768}, 32768, 0),
        (
            {
                "context_length": 200,
                "top_provider": {"context_length": 100, "max_completion_tokens": 50},
            },
            100,
            50,
        ),
        ({"loaded_context_length": 4096, "max_context_length": 32768}, 4096, 0),
        ({"max_input_tokens": 9000, "max_output_tokens": 900}, 9000, 900),
        ({"model_info": {"max_input_tokens": 9000}}, 9000, 0),
        ({"limits": {"max_input_tokens": 9000, "max_output_tokens": 900}}, 9000, 900),
    ],
)
def test_the_list_of_models_tells_sizes(told: JsonObject, size: int, limit: int) -> None:
    entry = parse_models({"object": "list", "data": [{"id": "m", **told}]})[0]
    assert (entry.id, entry.context_size, entry.output_limit) == ("m", size, limit)
    assert bool(entry.source) == bool(size)


@pytest.mark.parametrize("body", [{}, {"data": None}, {"data": [1, {"id": 5}, {}]}, {"error": "x"}])
def test_no_list_is_an_empty_one(body: JsonObject) -> None:
    assert parse_models(body) == []


def test_only_servers_that_may_have_them_are_asked_for_more() -> None:
    assert OpenAIChatAdapter(OPENAI).probes("m") == []
    adapter = OpenAIChatAdapter(EXTENDED)
    props, lm_studio = adapter.probes("m")
    assert (props.path, props.method, props.stream) == ("../props", "GET", False)
    slot = {"default_generation_settings": {"n_ctx": 2048}}
    assert adapter.parse_probe(props, slot, "m") == ModelEntry(
        "m", 2048, source="llama.cpp's /props"
    )
    assert adapter.parse_probe(props, {"default_generation_settings": {"n_ctx": 0}}, "m") is None
    listed = {"data": [{"id": "n"}, {"id": "m", "loaded_context_length": 512}]}
    found = adapter.parse_probe(lm_studio, listed, "m")
    assert found is not None
    assert found.context_size == 512
    assert adapter.parse_probe(lm_studio, listed, "n") is None


@pytest.mark.parametrize(
    ("type", "url", "dialect", "model", "name"),
    [
        ("openai", "", "", "gpt-4.1", "openai"),
        ("openai", "", "", "gpt-5.4", "openai-responses"),
        ("openai", "https://api.openai.com/v1", "", "o3-pro", "openai-responses"),
        ("openai", "", "strict", "gpt-5.4", "openai"),
        ("openai", "https://api.together.xyz/v1", "", "gpt-5.4", "openai"),
        ("openai", "http://localhost/v1", "", "gpt-5.4", "openai"),
        ("openai-responses", "http://localhost/v1", "", "mine", "openai-responses"),
    ],
)
def test_models_that_need_it_get_the_responses_api(
    type: str, url: str, dialect: str, model: str, name: str
) -> None:
    assert adapter_for(type, url, dialect, model).name == name


def test_openai_s_own_models_print_no_calls() -> None:
    assert not OpenAIChatAdapter(OPENAI).prints_calls
    assert OpenAIChatAdapter(PLAIN).prints_calls


@pytest.mark.parametrize(
    ("type", "url", "model"),
    [
        ("openai-responses", "", "gpt-5"),
        ("openai-responses", "https://mine.openai.azure.com/openai/v1", "gpt-5"),
        ("anthropic", "", ""),
        ("anthropic", "https://api.anthropic.com", ""),
        ("anthropic", "https://gateway.example/claude", "anthropic/Claude-Sonnet-4.5"),
    ],
)
def test_vendors_own_models_print_no_calls(type: str, url: str, model: str) -> None:
    assert not adapter_for(type, url, "", model).prints_calls


@pytest.mark.parametrize(
    ("type", "url", "model"),
    [
        ("openai-responses", "http://localhost:8080/v1", ""),
        ("anthropic", "http://localhost:8080", ""),
        ("anthropic", "https://notanthropic.com", "qwen3"),
    ],
)
def test_other_models_in_a_vendors_language_may(type: str, url: str, model: str) -> None:
    assert adapter_for(type, url, "", model).prints_calls


@pytest.mark.parametrize("type", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
def test_every_api_reads_max_input_tokens(type: str) -> None:
    item = {"id": "m", "name": "m", "max_input_tokens": 9000, "max_output_tokens": 900}
    [entry] = adapter_for(type).parse_models({"data": [item], "models": [item]})
    assert (entry.id, entry.context_size, entry.output_limit) == ("m", 9000, 900)
