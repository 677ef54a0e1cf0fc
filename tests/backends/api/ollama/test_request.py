"""Requests to Ollama."""

from typing import Any

import pytest
from hypothesis import given

from shepherd.backends.api.adapter import ApiRequest, ModelTraits
from shepherd.backends.api.ollama import DEFAULT_NUM_CTX, OllamaAdapter
from shepherd.backends.api.stream import Framing
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, Message, ToolCall, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.backends.api.conversations import conversations, texts
from tests.backends.api.ollama.official import check_body

ADAPTER = OllamaAdapter()
READ = ToolCall("a", "read_file", {"path": "x"})
LIST = ToolCall("b", "list_files", {})
TOOL = ToolSpec("t", "does it", {"type": "object", "properties": {"a": {"type": "string"}}})


def body(
    *messages: Message, model: str = "qwen3", max_tokens: int = 0, thinks: bool = False, **more: Any
) -> JsonObject:
    traits = ModelTraits(model, context_size=more.pop("context_size", 0), thinking=thinks)
    session = Session(messages=list(messages) or [Message.user("hi")], **more)
    found = ADAPTER.chat(session, traits, max_tokens).body
    check_body(found)
    assert found is not None
    return found


@given(texts, conversations)
def test_any_conversation_is_valid(system: str, told: list[Message]) -> None:
    check_body(ADAPTER.chat(Session(system, told), ModelTraits("m", thinking=True), 0).body)


def test_where_it_goes_and_with_what_key() -> None:
    request = ADAPTER.chat(Session(), ModelTraits("m"), 0)
    assert (request.method, request.path, request.stream) == ("POST", "/api/chat", True)
    assert ADAPTER.framing is Framing.NDJSON
    assert ADAPTER.auth("secret") == {"Authorization": "Bearer secret"}
    assert ADAPTER.auth("") == {}
    assert ADAPTER.models() == ApiRequest("/api/tags", None, "GET", stream=False)


def test_calls_are_objects_and_results_have_names() -> None:
    asked = Message.assistant("Let me look.", "Which?", (READ, LIST))
    told = body(
        Message.user("hi"),
        asked,
        Message.tool(LIST, "x, y"),
        Message.tool(READ, "text"),
        system_message="be short",
        thinks=True,
    )
    assert told["messages"] == [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "thinking": "Which?",
            "tool_calls": [
                {"function": {"name": "read_file", "arguments": {"path": "x"}}},
                {"function": {"name": "list_files", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "text", "tool_name": "read_file"},
        {"role": "tool", "content": "x, y", "tool_name": "list_files"},
    ]


def test_the_window_is_always_told_and_nothing_is_cut_in_silence() -> None:
    assert body()["options"] == {"num_ctx": DEFAULT_NUM_CTX}
    known = body(context_size=4096, max_tokens=100)
    assert known["options"] == {"num_ctx": 4096, "num_predict": 100}
    assert known["truncate"] is False
    assert "keep_alive" not in known


def test_sampling() -> None:
    sampling = Sampling(
        temperature=0.0,
        top_p=0.9,
        top_k=0,
        min_p=0.1,
        penalty_repeat=1.1,
        penalty_last_n=-1,
        seed=7,
        stop=("END",),
        dry_multiplier=0.5,
    )
    assert body(sampling=sampling)["options"] == {
        "num_ctx": DEFAULT_NUM_CTX,
        "temperature": 0.0,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": 0.1,
        "repeat_penalty": 1.1,
        "repeat_last_n": -1,
        "seed": 7,
        "stop": ["END"],
    }


def test_log_probabilities() -> None:
    assert "logprobs" not in body()
    plain = body(sampling=Sampling(logprobs=0))
    assert (plain["logprobs"], plain.get("top_logprobs")) == (True, None)
    assert body(sampling=Sampling(logprobs=3))["top_logprobs"] == 3


@pytest.mark.parametrize(
    ("model", "on", "off"), [("qwen3", True, False), ("gpt-oss:20b", "medium", "low")]
)
def test_thinking(model: str, on: object, off: object) -> None:
    assert body(model=model, thinks=True, thinking=True)["think"] == on
    assert body(model=model, thinks=True)["think"] == off
    assert "think" not in body(model=model, thinking=True)


def test_tools_have_no_references() -> None:
    schema: JsonObject = {
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": True},
        "$defs": {"A": {"type": "string", "enum": ["x"]}},
    }
    offered = body(tools=[TOOL, ToolSpec("u", "", schema)])["tools"]
    assert offered[0] == {
        "type": "function",
        "function": {"name": "t", "description": "does it", "parameters": TOOL.parameters},
    }
    assert offered[1]["function"]["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "string", "enum": ["x"]}, "b": {}},
    }


def test_answers_in_json() -> None:
    schema: JsonObject = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}
    assert body(output_format=OutputFormat(schema))["format"] == schema
    assert body(output_format=OutputFormat({"type": "object"}))["format"] == "json"


@pytest.mark.parametrize(
    "asked",
    [
        {"sampling": Sampling(ignore_eos=True)},
        {"sampling": Sampling(logit_bias=(("a", 1.0),))},
        {"output_format": OutputFormat(grammar='root ::= "a"')},
        {"tools": [TOOL], "tool_choice": ToolChoice()},
    ],
)
def test_what_it_has_not_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="Ollama"):
        body(**asked)
