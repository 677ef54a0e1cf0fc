"""What else is in a request to Gemini, and its lists of models."""

from typing import Any

import pytest
from google.genai import types

from shepherd.backends.api.adapter import ApiRequest, ModelEntry, ModelTraits
from shepherd.backends.api.gemini import GeminiAdapter
from shepherd.backends.api.stream import Framing
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, Message, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.backends.api.gemini.official import check_body

ADAPTER = GeminiAdapter()
TOOL = ToolSpec("t", "does it", {"type": "object", "properties": {"a": {"type": "string"}}})
BARE = ToolSpec("bare", "needs nothing")


def body(max_tokens: int = 0, *, model: str = "gemini-2.5-flash", **session: Any) -> JsonObject:
    traits = ModelTraits(model, output_limit=8192, thinking="2.0" not in model)
    asked = Session(messages=[Message.user("hi")], **session)
    found = ADAPTER.chat(asked, traits, max_tokens).body
    check_body(found)
    assert found is not None
    return found


def config(max_tokens: int = 0, **more: Any) -> JsonObject:
    return body(max_tokens, model="gemini-2.0-flash", **more)["generationConfig"]


def test_where_it_goes_and_with_what_key() -> None:
    request = ADAPTER.chat(Session(messages=[Message.user("hi")]), ModelTraits("gemini-x"), 0)
    assert request.path == "/v1beta/models/gemini-x:streamGenerateContent?alt=sse"
    assert (request.method, request.stream, ADAPTER.framing) == ("POST", True, Framing.SSE)
    assert ADAPTER.auth("secret") == {"x-goog-api-key": "secret"}
    assert ADAPTER.auth("") == {}
    tuned = ADAPTER.chat(Session(), ModelTraits("tunedModels/mine"), 0)
    assert tuned.path == "/v1beta/tunedModels/mine:streamGenerateContent?alt=sse"


def test_the_system_message_stands_apart() -> None:
    assert "systemInstruction" not in body()
    assert body(system_message="be short")["systemInstruction"] == {"parts": [{"text": "be short"}]}


def test_sampling() -> None:
    sampling = Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        seed=2**32 - 1,
        stop=("END",),
        penalty_present=0.1,
        penalty_freq=0.2,
    )
    assert config(100, sampling=sampling) == {
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 40,
        "seed": 2**31 - 1,
        "stopSequences": ["END"],
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "maxOutputTokens": 100,
    }
    assert config(9_000_000, sampling=Sampling(top_k=0)) == {"maxOutputTokens": 8192}
    assert "generationConfig" not in body(model="gemini-2.0-flash")


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(logprobs=0),
        Sampling(logit_bias=((1, 1.0),)),
        Sampling(ignore_eos=True),
        Sampling(stop=tuple("abcdef")),
    ],
)
def test_what_it_has_not_is_refused(sampling: Sampling) -> None:
    with pytest.raises(InvalidRequestError, match="Gemini"):
        body(sampling=sampling)


@pytest.mark.parametrize(
    ("model", "on", "off"),
    [
        ("gemini-2.5-flash", {"thinkingBudget": -1}, {"thinkingBudget": 0}),
        ("gemini-2.5-pro", {"thinkingBudget": -1}, {"thinkingBudget": 128}),
        ("gemini-3-pro-preview", {"thinkingLevel": "HIGH"}, {"thinkingLevel": "LOW"}),
        ("gemini-flash-latest", {"thinkingLevel": "HIGH"}, {"thinkingLevel": "LOW"}),
    ],
)
def test_thinking(model: str, on: JsonObject, off: JsonObject) -> None:
    thinks = body(model=model, thinking=True)["generationConfig"]["thinkingConfig"]
    assert thinks == {"includeThoughts": True} | on
    assert body(model=model)["generationConfig"]["thinkingConfig"] == off


def test_tools_and_calls_that_must_be_made() -> None:
    offered = body(tools=[TOOL, BARE])
    assert offered["tools"] == [
        {
            "functionDeclarations": [
                {"name": "t", "description": "does it", "parametersJsonSchema": TOOL.parameters},
                {"name": "bare", "description": "needs nothing"},
            ]
        }
    ]
    assert offered["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}
    for choice, wanted in (
        (ToolChoice(), {"mode": "ANY"}),
        (ToolChoice("t"), {"mode": "ANY", "allowedFunctionNames": ["t"]}),
    ):
        forced = body(tools=[TOOL], tool_choice=choice)
        assert forced["toolConfig"] == {"functionCallingConfig": wanted}
    with pytest.raises(InvalidRequestError, match="one call"):
        body(tools=[TOOL], tool_choice=ToolChoice(single=True))


def test_answers_in_json() -> None:
    any_object = config(output_format=OutputFormat({"type": "object"}))
    assert any_object == {"responseMimeType": "application/json"}
    schema: JsonObject = {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}
    assert config(output_format=OutputFormat(schema)) == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
    with pytest.raises(InvalidRequestError, match="pattern"):
        config(output_format=OutputFormat(schema, strict=True))
    with pytest.raises(InvalidRequestError, match="grammar"):
        config(output_format=OutputFormat(grammar='root ::= "a"'))


def test_the_models_that_can_answer_are_listed() -> None:
    listed = [
        {
            "name": "models/gemini-2.5-flash",
            "inputTokenLimit": 1048576,
            "outputTokenLimit": 65536,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        },
        {"name": "models/embedding-001", "supportedGenerationMethods": ["embedContent"]},
        {"name": "models/unknown"},
    ]
    for item in listed:
        names = {"supported_actions": item.get("supportedGenerationMethods")}
        rest = {k: v for k, v in item.items() if k != "supportedGenerationMethods"}
        types.Model.model_validate(rest | names)
    source = "the list of models (inputTokenLimit)"
    flash = ModelEntry("gemini-2.5-flash", 1048576, 65536, source)
    assert ADAPTER.models() == ApiRequest("/v1beta/models?pageSize=1000", None, "GET", stream=False)
    assert ADAPTER.parse_models({"models": listed}) == [flash, ModelEntry("unknown")]
    assert ADAPTER.parse_models({"error": {"code": 500}}) == []
    (probe,) = ADAPTER.probes("gemini-2.5-flash")
    assert (probe.method, probe.path) == ("GET", "/v1beta/models/gemini-2.5-flash")
    assert ADAPTER.parse_probe(probe, listed[0], "gemini-2.5-flash") == flash
