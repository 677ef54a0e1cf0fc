"""Sessions become exactly these requests."""

import pytest
from msgspec.structs import replace

from shepherd.backends.api.adapter import ApiRequest, ModelTraits
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, Message, ToolCall, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import Session, ToolChoice
from tests.backends.api.anthropic.schema import check_request

OLD = ModelTraits("claude-sonnet-4-5", 200_000, 64_000, thinking=True)
NEW = ModelTraits("claude-opus-5", 1_000_000, 128_000, thinking=True)
LOCAL = ModelTraits("qwen.gguf", 4096)

MARK = {"cache_control": {"type": "ephemeral"}}

READ = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {}}})
ONE, TWO = ToolCall("toolu_1", "read", {"path": "a"}), ToolCall("toolu_2", "read", {"path": "b"})


def request(session: Session, model: ModelTraits = OLD, max_tokens: int = 0) -> ApiRequest:
    asked = AnthropicAdapter().chat(session, model, max_tokens)
    check_request(asked)
    return asked


def body(session: Session, model: ModelTraits = OLD, max_tokens: int = 0) -> JsonObject:
    return request(session, model, max_tokens).body or {}


def test_a_conversation_with_parallel_calls() -> None:
    session = Session(
        "Be brief.",
        [
            Message.user("Compare a and b."),
            Message.assistant("I read both.", "They may differ.", (ONE, TWO)),
            Message.tool(ONE, "same"),
            Message.tool(TWO, "Error: no such file"),
            Message.hint("Go on without b."),
        ],
        tools=[READ],
        sampling=Sampling(temperature=0.5, top_p=0.9, top_k=20, min_p=0.1, stop=("END",)),
    )
    asked = request(session, max_tokens=500)
    assert asked.path == "/v1/messages"
    assert asked.stream
    assert dict(asked.headers) == {"anthropic-version": "2023-06-01"}
    assert asked.body == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 500,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", **MARK}],
        "tools": [
            {
                "name": "read",
                "description": "Reads a file.",
                "input_schema": {"type": "object", "properties": {"path": {}}},
                **MARK,
            }
        ],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Compare a and b.", **MARK}],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I read both."},
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {"path": "b"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "same"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "content": "Error: no such file",
                        "is_error": True,
                    },
                    {"type": "text", "text": "Go on without b.", **MARK},
                ],
            },
        ],
        "temperature": 0.5,
        "top_k": 20,
        "stop_sequences": ["END"],
    }


def test_the_key_is_a_header_of_its_own() -> None:
    assert dict(AnthropicAdapter().auth("sk-1")) == {"x-api-key": "sk-1"}
    assert dict(AnthropicAdapter().auth("")) == {}


def test_a_session_with_nothing_in_it_is_a_valid_request() -> None:
    asked = request(Session())
    assert dict(asked.headers) == {"anthropic-version": "2026-10-21"}
    assert set(asked.body or {}) == {"model", "max_tokens", "stream", "messages"}


def test_tools_that_were_called_but_are_no_longer_on_offer_cannot_be_called() -> None:
    history = [Message.user("Read a."), Message.assistant("", tool_calls=(ONE,))]
    asked = body(Session(messages=[*history, Message.tool(ONE, "text")]))
    assert [tool["name"] for tool in asked["tools"]] == ["read"]
    assert asked["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice(), {"type": "any"}),
        (ToolChoice(single=True), {"type": "any", "disable_parallel_tool_use": True}),
        (
            ToolChoice("read"),
            {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_a_call_is_forced_and_then_nothing_is_thought(
    choice: ToolChoice, expected: JsonObject
) -> None:
    session = Session("", [Message.user("Go.")], [READ], thinking=True, tool_choice=choice)
    old, new = body(session), body(session, NEW)
    assert old["tool_choice"] == new["tool_choice"] == expected
    assert "thinking" not in old
    assert new["thinking"] == {"type": "disabled"}


def test_a_model_that_cannot_be_forced_says_so() -> None:
    session = Session("", [Message.user("Go.")], [READ], tool_choice=ToolChoice())
    with pytest.raises(InvalidRequestError, match="claude-opus-5-5") as caught:
        AnthropicAdapter().chat(session, ModelTraits("claude-opus-5-5"), 0)
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        (Sampling(temperature=1.1), "temperature"),
        (Sampling(top_p=-0.1), "top_p"),
        (Sampling(stop=("\n",)), "stop"),
    ],
)
def test_what_is_out_of_range_is_named(sampling: Sampling, param: str) -> None:
    session = Session(messages=[Message.user("Hi")], sampling=sampling)
    with pytest.raises(InvalidRequestError, match=param) as caught:
        AnthropicAdapter().chat(session, LOCAL, 0)
    assert caught.value.param == param


def test_settings_for_other_models_are_left_out() -> None:
    local = Sampling(temperature=1.5, top_p=0.9, top_k=40, mirostat=2, seed=3, logprobs=5)
    asked = request(Session(messages=[Message.user("Hi")], sampling=local), NEW)
    assert set(asked.body or {}) == {"model", "max_tokens", "stream", "messages", "thinking"}
    assert asked.headers["anthropic-version"] == "2026-10-21"
    known = replace(local, temperature=0.3, top_k=0)
    elsewhere = body(Session(messages=[Message.user("Hi")], sampling=known), LOCAL)
    assert (elsewhere["temperature"], elsewhere["top_p"]) == (0.3, 0.9)
    assert "top_k" not in elsewhere


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        (OLD, 0, 64_000),
        (OLD, 100, 100),
        (OLD, 100_000, 64_000),
        (ModelTraits("claude-opus-4-1"), 0, 32_000),
        (ModelTraits("claude-opus-4-1"), 2**31 - 1, 32_000),
        (LOCAL, 0, 2048),
        (LOCAL, 3000, 3000),
        (LOCAL, 10_000, 4096),
        (ModelTraits("unknown"), 0, 8192),
        (ModelTraits("unknown"), 20_000, 20_000),
    ],
)
def test_max_tokens_is_always_sent_and_never_more_than_fits(
    model: ModelTraits, asked: int, sent: int
) -> None:
    assert body(Session(messages=[Message.user("Hi")]), model, asked)["max_tokens"] == sent
