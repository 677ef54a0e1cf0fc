"""Each field of each API is honoured, accepted because it changes nothing, or refused by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError

from shepherd.messages import JsonObject
from shepherd.sampling import Sampling
from shepherd.server.anthropic.requests import MessagesRequest
from shepherd.server.errors import ApiError
from shepherd.server.gemini.requests import GenerateRequest as GeminiRequest
from shepherd.server.gemini.requests import GenerationConfig
from shepherd.server.ollama.requests import ChatRequest as OllamaChat
from shepherd.server.ollama.requests import GenerateRequest as OllamaGenerate
from shepherd.server.ollama.requests import Options
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai_responses.requests import ResponsesRequest
from shepherd.server.raw.requests import CompletionBody, CompletionRequest, InfillBody
from shepherd.server.wire.fields import CONTROLS, names_of
from shepherd.server.wire.sampling import DecodingFields, SamplingFields
from tests.patience import PATIENCE
from tests.server.harness import scripted

HI: JsonObject = {"messages": [{"role": "user", "content": "hi"}]}
SAMPLED: Mapping[str, Any] = {
    "temperature": 0.1, "top_p": 0.2, "top_k": 3, "min_p": 0.3, "min_keep": 2, "typical_p": 0.4,
    "top_n_sigma": 2.0, "xtc_probability": 0.4, "xtc_threshold": 0.2, "dynatemp_range": 0.5,
    "dynatemp_exponent": 2.0, "repetition_penalty": 1.2, "repeat_last_n": 7,
    "frequency_penalty": 0.3, "presence_penalty": 0.4, "dry_multiplier": 0.7, "dry_base": 2.0,
    "dry_allowed_length": 4, "dry_penalty_last_n": 9, "dry_sequence_breakers": ["x"],
    "mirostat": 1, "mirostat_tau": 4.0, "mirostat_eta": 0.2, "samplers": ["top_k"], "seed": 4,
    "stop": ["x"], "logit_bias": {"1": 2.0}, "ignore_eos": True,
}  # fmt: skip
"""A value of each sampling parameter, under the name of its field."""

FOREIGN: Mapping[str, Any] = {
    "guided_json": {"type": "object"}, "min_tokens": 4, "stop_token_ids": [1], "bad_words": ["x"],
    "use_beam_search": True, "lora": [{"id": 0}], "image_data": [{"id": 1}],
    "t_max_predict_ms": 5, "adaptive_target": 0.4,
}  # fmt: skip
"""Controls of llama.cpp and other servers, which most APIs do not have."""


NOTHING: Sequence[Any] = (None, False, "", [], {})


@dataclass(frozen=True)
class Wire:
    """An API: a request, the fields that it honours, and those that change no answer."""

    model: type[BaseModel]
    body: JsonObject
    honoured: str
    accepted: str = "model"
    refused: str = ""
    path: str = ""
    samples: bool = field(default=True)

    @property
    def names(self) -> list[str]:
        sampled = list(SAMPLED) if self.samples else []
        return [*self.honoured.split(), *self.accepted.split(), *self.refused.split(), *sampled]


WIRES = {
    "chat": Wire(
        ChatRequest,
        HI,
        "messages tools tool_choice parallel_tool_calls stream stream_options max_completion_tokens"
        " max_tokens reasoning_effort thinking_budget_tokens chat_template_kwargs n response_format"
        " grammar json_schema"
        " continue_final_message add_generation_prompt return_progress timings_per_token verbose"
        " logprobs top_logprobs modalities id_slot",
        "model service_tier prediction verbosity metadata",
        "functions function_call audio web_search_options",
        "/v1/chat/completions",
    ),
    "completions": Wire(
        CompletionRequest,
        {"prompt": "hi"},
        "prompt suffix max_tokens echo logprobs n best_of stream stream_options grammar"
        " json_schema",
        path="/v1/completions",
    ),
    "completion": Wire(
        CompletionBody,
        {"prompt": "hi"},
        "prompt n_predict stream n_cmpl n_probs post_sampling_probs return_tokens response_fields"
        " id_slot return_progress timings_per_token grammar json_schema n_indent t_max_predict_ms",
        "model cache_prompt",
        path="/completion",
    ),
    "infill": Wire(
        InfillBody,
        {"input_prefix": "a", "input_suffix": "b"},
        "input_prefix input_suffix prompt input_extra n_predict stream n_cmpl n_probs return_tokens"
        " post_sampling_probs id_slot response_fields return_progress timings_per_token grammar"
        " json_schema n_indent t_max_predict_ms",
        "model cache_prompt",
        path="/infill",
    ),
    "responses": Wire(
        ResponsesRequest,
        {"input": "hi"},
        "input instructions tools tool_choice parallel_tool_calls stream"
        " max_output_tokens max_tool_calls reasoning text truncation previous_response_id store"
        " background include logprobs top_logprobs temperature top_p return_progress"
        " timings_per_token",
        "model metadata service_tier user prompt_cache_key safety_identifier",
        "conversation prompt moderation context_management",
        "/v1/responses",
    ),
    "messages": Wire(
        MessagesRequest,
        HI | {"max_tokens": 5},
        "messages system tools tool_choice thinking output_config output_format max_tokens stream"
        " stop_sequences temperature top_p top_k",
        "model context_management mcp_servers",
        "container thread compaction",
        "/v1/messages",
        samples=False,
    ),
    "gemini": Wire(
        GeminiRequest,
        {"contents": "hi"},
        "contents system_instruction tools tool_config generation_config",
        "",
        "cached_content continuation_token",
        "/v1beta/models/m:generateContent",
        samples=False,
    ),
    "gemini_config": Wire(
        GenerationConfig,
        {},
        "temperature top_p top_k presence_penalty frequency_penalty seed max_output_tokens"
        " stop_sequences candidate_count response_logprobs logprobs response_mime_type"
        " response_schema response_json_schema thinking_config response_modalities",
        "",
        "speech_config image_config",
        samples=False,
    ),
    "ollama_chat": Wire(
        OllamaChat,
        HI | {"model": "m"},
        "messages stream think format options keep_alive logprobs top_logprobs truncate tools",
        path="/api/chat",
        samples=False,
    ),
    "ollama_generate": Wire(
        OllamaGenerate,
        {"model": "m", "prompt": "hi"},
        "prompt system images raw suffix stream think format options keep_alive logprobs"
        " top_logprobs",
        "model",
        "template context width height steps",
        "/api/generate",
        samples=False,
    ),
    "ollama_options": Wire(Options, {}, "num_predict logprobs top_logprobs", ""),
}
by_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES.keys())


@by_wire
def test_each_field_is_classified(wire: Wire) -> None:
    assert set(wire.names) == set(wire.model.model_fields)


@by_wire
def test_controls_of_other_apis_are_refused_by_name(wire: Wire) -> None:
    own = names_of(wire.model)
    others = {name: value for name, value in FOREIGN.items() if name not in own}
    ignored: frozenset[str] = getattr(wire.model, "ignored", frozenset[str]())
    foreign = dict.fromkeys(CONTROLS - own - ignored, "x") | others
    assert "ignore_eos" in foreign or wire.samples
    for name, value in foreign.items():
        with pytest.raises(ApiError) as caught:
            wire.model.model_validate({**wire.body, name: value})
        assert caught.value.param == name
    for name in ignored:
        wire.model.model_validate({**wire.body, name: "x"})
    for name in foreign:
        for nothing in NOTHING:
            wire.model.model_validate({**wire.body, name: nothing})


@pytest.mark.parametrize(
    "wire", [w for w in WIRES.values() if w.path], ids=[n for n, w in WIRES.items() if w.path]
)
def test_the_refusal_is_an_error_of_the_api(wire: Wire) -> None:
    foreign = min(CONTROLS - names_of(wire.model))
    with scripted("text: hi") as server:
        body = {**wire.body, foreign: "x"}
        answer = httpx.post(server.url + wire.path, json=body, timeout=PATIENCE)
    assert answer.status_code == 400
    assert foreign in answer.text


@pytest.mark.parametrize("model", [DecodingFields, SamplingFields])
def test_each_sampling_parameter_is_honoured(model: type[DecodingFields]) -> None:
    assert set(SAMPLED) == set(DecodingFields.model_fields)
    for name, value in SAMPLED.items():
        sampling = model.model_validate({name: value}).to_sampling()
        assert sampling != Sampling(), name


@pytest.mark.parametrize("name", ["chat", "responses", "messages"])
def test_what_asks_for_nothing_is_accepted(name: str) -> None:
    wire = WIRES[name]
    wire.model.model_validate({**wire.body, "options": {"num_ctx": 8192, "use_mmap": True}})
    with pytest.raises(ApiError, match="options is not a parameter"):
        wire.model.model_validate({**wire.body, "options": {"num_ctx": 8192, "temperature": 1}})


@pytest.mark.parametrize("name", ["ollama_chat", "ollama_generate"])
def test_ollamas_api_ignores_what_ollama_ignores(name: str) -> None:
    wire = WIRES[name]
    sent = {"temperature": 0.0, "max_tokens": 9, "tool_choice": "auto", "stop": ["x"]}
    wire.model.model_validate({**wire.body, **sent})


def test_an_unknown_value_of_an_option_that_only_shows_is_the_nearest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for display in ("updates-1", "updates-1", "updates-2"):
        thinking = {"type": "adaptive", "display": display}
        messages = MessagesRequest.model_validate({**WIRES["messages"].body, "thinking": thinking})
        assert messages.thinking is not None
        assert messages.thinking.display == "summarized"
    assert [record.message.count("updates-") for record in caplog.records] == [1, 1]
    request = ResponsesRequest.model_validate({"input": "hi", "reasoning": {"summary": "brief"}})
    assert request.reasoning is not None
    assert request.reasoning.summary == "auto"
    for thinking in ({"type": "sometimes"}, {"type": "adaptive", "display": 5}):
        with pytest.raises(ValidationError):
            MessagesRequest.model_validate({**WIRES["messages"].body, "thinking": thinking})
