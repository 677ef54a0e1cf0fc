"""How much a model is to think, in each API's own words."""

from typing import Any

import pytest

from shepherd.backends.api.adapter import ApiRequest, ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.backends.api.parameters import EFFORTS, nearest
from shepherd.backends.connect import adapter_for
from shepherd.config.provider import make_provider
from shepherd.config.section import Effort
from shepherd.errors import ConfigError
from shepherd.messages import JsonObject, Message, ToolSpec
from shepherd.session import Session
from tests.backends.api.anthropic.schema import check_request
from tests.backends.api.gemini.official import check_body
from tests.backends.api.ollama.official import check_body as check_ollama
from tests.backends.api.openai.official import said as delta
from tests.backends.api.openai.official import valid_chat, valid_responses
from tests.backends.api.support import Events, options
from tests.backends.api.upstream import Received, Reply, Upstream

NEAR = "http://localhost:1/v1"


def requested(
    type: str, model: str, effort: str, url: str = "", *, able: bool = True, **session: Any
) -> ApiRequest:
    """A request to a model that is able to think, or is not known to be."""
    traits = ModelTraits(model, 200_000, 64_000, thinking=able, effort=effort)
    told = Session(messages=[Message.user("hi")], **session)
    return adapter_for(type, url, model=model).chat(told, traits, 0)


def asked(
    type: str, model: str, effort: str, url: str = "", *, able: bool = True, **session: Any
) -> JsonObject:
    """The body of such a request."""
    body = requested(type, model, effort, url, able=able, **session).body
    assert body is not None
    return body


def test_the_settings_are_those_that_apis_know() -> None:
    assert {"", *EFFORTS} == set(Effort)
    assert [nearest(e, ("low", "high")) for e in EFFORTS] == ["low"] * 4 + ["high"] * 2
    with pytest.raises(ConfigError, match=r'x\.effort must be one of "", "none", "minimal", "low"'):
        make_provider("x", {"type": "openai", "effort": "huge"})


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("gpt-5", "", "minimal"), ("gpt-5", "none", "minimal"), ("gpt-5", "minimal", "minimal"),
        ("gpt-5", "low", "low"), ("gpt-5", "high", "high"), ("gpt-5", "xhigh", "high"),
        ("gpt-5.1", "none", "none"), ("gpt-5.1", "minimal", "none"), ("gpt-5.1", "high", "high"),
        ("gpt-5.2", "xhigh", "xhigh"), ("o3", "none", "low"), ("o3", "xhigh", "high"),
        ("gpt-4o", "high", None),
    ],
)  # fmt: skip
def test_openai(model: str, effort: str, sent: str | None) -> None:
    chat = valid_chat(asked("openai", model, effort, able=False))
    assert chat.get("reasoning_effort") == sent
    responses = valid_responses(asked("openai-responses", model, effort, able=False))
    assert responses.get("reasoning", {}).get("effort") == sent
    shown = effort not in ("", "none")
    assert ("summary" in responses.get("reasoning", {})) is (shown and sent is not None)


def test_openai_takes_tools_only_without_reasoning() -> None:
    body = asked("openai", "gpt-5.2", "high", tools=[ToolSpec("look", "Look.")])
    assert body["reasoning_effort"] == "none"


def test_servers_that_speak_openais_language() -> None:
    own = asked("openai", "gpt-oss-20b", "high", NEAR, able=False)
    assert own["reasoning_effort"] == "high"
    assert own["chat_template_kwargs"] == {"enable_thinking": True}
    off = asked("openai", "qwen3", "none", NEAR)
    assert off["chat_template_kwargs"] == {"enable_thinking": False}
    assert "reasoning_effort" not in off
    router = "https://openrouter.ai/api/v1"
    assert asked("openai", "z/thinker", "low", router)["reasoning_effort"] == "low"
    assert "reasoning_effort" not in asked("openai", "z/plain", "low", router, able=False)
    deepseek = "https://api.deepseek.com/v1"
    for effort, told in (("low", "enabled"), ("none", "disabled")):
        assert asked("openai", "deepseek-chat", effort, deepseek)["thinking"] == {"type": told}


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "config"),
    [
        ("claude-sonnet-4-5", "low", {"type": "enabled", "budget_tokens": 4096}, None),
        ("claude-sonnet-4-5", "high", {"type": "enabled", "budget_tokens": 24_576}, None),
        ("claude-sonnet-4-5", "none", None, None),
        ("claude-opus-4-6", "minimal", {"type": "adaptive"}, {"effort": "low"}),
        ("claude-opus-4-6", "xhigh", {"type": "adaptive"}, {"effort": "high"}),
        ("claude-opus-4-7", "xhigh", {"type": "adaptive", "display": "summarized"},
         {"effort": "xhigh"}),
        ("claude-opus-4-6", "none", None, None),
    ],
)  # fmt: skip
def test_anthropic(
    model: str, effort: str, thinking: JsonObject | None, config: JsonObject | None
) -> None:
    body = check_request(requested("anthropic", model, effort))
    assert (body.get("thinking"), body.get("output_config")) == (thinking, config)
    plain = asked("anthropic", model, effort, able=False)
    assert "output_config" not in plain


@pytest.mark.parametrize(
    ("model", "effort", "config"),
    [
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        ("gemini-2.5-pro", "medium", {"thinkingBudget": 8192, "includeThoughts": True}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("gemini-3-pro-preview", "xhigh", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-3-flash", "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-3-flash", "none", {"thinkingLevel": "MINIMAL"}),
    ],
)
def test_gemini(model: str, effort: str, config: JsonObject) -> None:
    body = asked("gemini", model, effort)
    check_body(body)
    assert body["generationConfig"]["thinkingConfig"] == config
    assert "thinkingConfig" not in asked("gemini", model, effort, able=False).get(
        "generationConfig", {}
    )


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("qwen3:8b", "none", False), ("qwen3:8b", "high", True), ("gpt-oss:20b", "none", "low"),
        ("gpt-oss:20b", "medium", "medium"), ("gpt-oss:20b", "xhigh", "high"),
    ],
)  # fmt: skip
def test_ollama(model: str, effort: str, sent: bool | str) -> None:  # noqa: FBT001 - a value
    body = asked("ollama", model, effort)
    check_ollama(body)
    assert body["think"] == sent
    assert "think" not in asked("ollama", model, effort, able=False)


def test_without_an_effort_the_session_says() -> None:
    for thinking in (False, True):
        assert asked("ollama", "qwen3:8b", "", thinking=thinking)["think"] is thinking


async def test_the_users_output_limit_goes_before_the_servers() -> None:
    def answer(request: Received) -> Reply:
        model = {"id": "m", "context_length": 9000, "max_completion_tokens": 700}
        return Reply({"data": [model]}) if request.path == "/v1/models" else Reply("", 404)

    for setting, limit in ((0, 700), (500, 500), (900, 900)):
        async with Upstream(answer) as up:
            backend = await ApiBackend.connect(
                Endpoint(up.url + "/v1", name="acme"),
                adapter_for("openai", up.url + "/v1"),
                ModelTraits("m", output_limit=100, output_setting=setting),
                options=options(),
            )
            await backend.aclose()
            assert (backend.window.output_limit, backend.traits.output_limit) == (limit, limit)


async def test_a_request_says_its_effort_unless_the_settings_do() -> None:
    session = Session(
        messages=[Message.user("hi")], thinking=True, thinking_effort="low", thinking_budget=2000
    )
    for own, sent in (("", "low"), ("high", "high")):
        async with Upstream([Reply.sse([delta(content="Hm."), delta("stop")])]) as upstream:
            traits = ModelTraits("gpt-oss-20b", 8000, thinking=True, effort=own)
            adapter = adapter_for("openai", upstream.url, model=traits.id)
            backend = ApiBackend(Endpoint(upstream.url), adapter, traits, options=options())
            await backend.generate_from_session(session, Events())
            await backend.aclose()
        (body,) = [request.json for request in upstream.requests]
        assert body["reasoning_effort"] == sent
        assert body["thinking_budget_tokens"] == 2000


def test_a_budget_in_tokens_goes_to_apis_that_have_one() -> None:
    claude = requested("anthropic", "claude-sonnet-4-5", "", thinking=True, thinking_budget=3000)
    assert check_request(claude)["thinking"] == {"type": "enabled", "budget_tokens": 3000}
    gemini = asked("gemini", "gemini-2.5-flash", "", thinking=True, thinking_budget=3000)
    assert gemini["generationConfig"]["thinkingConfig"]["thinkingBudget"] == 3000
