"""Sessions as requests of the responses API."""

from typing import Any

import pytest
from hypothesis import given

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.openai.responses import OpenAIResponsesAdapter
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, Message, Role, ToolCall
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.backends.api.openai.official import valid_responses
from tests.backends.api.openai.test_chat_request import CALL, HISTORY, SPEC, lost_questions
from tests.backends.api.test_normalise import histories

ADAPTER = OpenAIResponsesAdapter()
REASONING: JsonObject = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "encrypted_content": "gAAA",
}
CALL_ITEM = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "add",
    "arguments": '{"a": 1, "b": "ö"}',
}
RESULT_ITEM = {"type": "function_call_output", "call_id": "call_1", "output": "2"}


def body(given: Session, model: str = "gpt-5", limit: int = 0, **traits: Any) -> JsonObject:
    request = ADAPTER.chat(given, ModelTraits(model, **traits), limit)
    assert request.body is not None
    assert (request.path, request.method, request.stream) == ("responses", "POST", True)
    return valid_responses(request.body)


def said(content: str, role: str = "assistant", **more: Any) -> JsonObject:
    return {"type": "message", "role": role, "content": content, **more}


def answer(items: list[JsonObject], content: str = "", *calls: ToolCall) -> list[JsonObject]:
    """The items that go back for an answer with these kept items."""
    message = Message(
        Role.ASSISTANT, content, tool_calls=calls, extra={ADAPTER.name: {"items": items}}
    )
    results = [Message.tool(call, "2") for call in calls]
    sent: list[JsonObject] = body(Session("", [HISTORY[0], message, *results]))["input"]
    return sent[1 : len(sent) - len(calls)]


def test_a_plain_request_has_what_it_needs_and_no_more() -> None:
    assert body(Session("Be short.", HISTORY), "gpt-4.1", 5) == {
        "model": "gpt-4.1",
        "instructions": "Be short.",
        "input": [
            said("1+1?", "user"),
            CALL_ITEM,
            RESULT_ITEM,
            said("2"),
            said("sure?", "user"),
        ],
        "stream": True,
        "store": False,
        "max_output_tokens": 16,
    }


def test_tools_are_told_without_strictness() -> None:
    choice = ToolChoice("add")
    given = body(Session("", HISTORY, tools=[SPEC], tool_choice=choice))
    assert given["tools"] == [
        {
            "type": "function",
            "name": "add",
            "description": "Adds.",
            "parameters": SPEC.parameters,
            "strict": False,
        }
    ]
    assert given["tool_choice"] == {"type": "function", "name": "add"}
    assert given["parallel_tool_calls"] is False
    assert "instructions" not in given


@pytest.mark.parametrize(
    ("model", "thinking", "reasoning"),
    [
        ("gpt-5.1", True, {"effort": "medium", "summary": "auto"}),
        ("gpt-5.1", False, {"effort": "none"}),
        ("gpt-5", False, {"effort": "minimal"}),
        ("gpt-5-pro", False, {"effort": "high"}),
        ("gpt-5.2-codex", False, {"effort": "low"}),
        ("o3-pro", False, {"effort": "medium"}),
        ("o3", False, {"effort": "low"}),
    ],
)
def test_reasoning_is_asked_for_and_comes_encrypted(
    model: str, reasoning: JsonObject, *, thinking: bool
) -> None:
    sampling = Sampling(temperature=0.5, top_p=0.5)
    given = body(Session("", HISTORY, thinking=thinking, sampling=sampling), model)
    assert given["reasoning"] == reasoning
    assert given["include"] == ["reasoning.encrypted_content"]
    assert {"temperature", "top_p"}.isdisjoint(given)


def test_others_are_sampled_as_asked() -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=5, logprobs=3)
    given = body(Session("", HISTORY, sampling=sampling), "gpt-4.1")
    assert (given["temperature"], given["top_p"], given["top_logprobs"]) == (0.5, 0.9, 3)
    assert given["include"] == ["message.output_text.logprobs"]
    assert "reasoning" not in given
    with pytest.raises(InvalidRequestError, match="logprobs"):
        body(Session("", HISTORY, sampling=Sampling(logprobs=0)), "o3")


def test_the_answer_s_form_is_told() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    given = body(Session("", HISTORY, output_format=OutputFormat(schema)))
    assert given["text"] == {
        "format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}
    }
    anything = body(Session("", HISTORY, output_format=OutputFormat({"type": "object"})))
    assert anything["text"] == {"format": {"type": "json_object"}}
    assert "JSON" in anything["instructions"]
    with pytest.raises(InvalidRequestError, match="grammar"):
        body(Session("", HISTORY, output_format=OutputFormat(grammar="root ::= [a]")))


def test_items_go_back_in_their_order() -> None:
    second: JsonObject = {**REASONING, "id": "rs_2"}
    kept: list[JsonObject] = [
        REASONING,
        {"type": "message", "length": 4, "phase": "commentary"},
        {"type": "function_call"},
        second,
        {"type": "message", "length": 2},
    ]
    assert answer(kept, "Hmm.ok", CALL) == [
        REASONING,
        said("Hmm.", phase="commentary"),
        CALL_ITEM,
        second,
        said("ok"),
    ]


def test_what_is_no_longer_what_came_goes_back_plainly() -> None:
    kept: list[JsonObject] = [
        {"type": "message", "length": 9},
        REASONING,
        {"type": "function_call"},
    ]
    assert answer(kept, "short", CALL) == [REASONING, said("short"), CALL_ITEM]


def test_reasoning_that_only_the_server_could_know_stays_away() -> None:
    unreadable: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert answer([unreadable, {"type": "message", "length": 2}], "ok") == [said("ok")]


@given(histories)
def test_openai_takes_every_history(history: list[Message]) -> None:
    request = body(Session("", history))
    assert lost_questions(history, request) == []
