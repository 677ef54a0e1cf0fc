"""The official `openai` client, and raw requests, against a scripted backend."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import ResponseErrorEvent
from pydantic import BaseModel

from shepherd.server.errors import ApiError
from shepherd.server.openai_responses.routes import ResponsesErrors
from tests.patience import PATIENCE
from tests.server.harness import Scripted, scripted
from tests.server.openai_responses.harness import PATH, checked, created, post, rebuilt, streamed

MARKDOWN = "Hello **you**\n```py\nx = 1\n```\nbye"
ANSWER = r"""
chunk: 4
think: Let me see.
text: "Hello **you**\n```py\nx = 1\n```\nbye"
"""
CALLS = """
text: Looking.
call: read_file {"path": "ä.txt", "limit": 3}
call: apply_patch {"input": "*** Begin\\n+ä"}
---
text: It is noon.
"""
TOOLS: list[Any] = [
    {"type": "function", "name": "read_file", "parameters": {"type": "object"}},
    {"type": "custom", "name": "apply_patch"},
]


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted(ANSWER) as running:
        yield running


@pytest.fixture
def calling() -> Iterator[Scripted]:
    with scripted(CALLS) as running:
        yield running


def test_a_whole_response(server: Scripted) -> None:
    response = created(server, model="gpt-5", metadata={"a": "b"}, prompt_cache_key="k")
    assert (response["model"], response["status"]) == ("gpt-5", "completed")
    assert (response["metadata"], response["prompt_cache_key"]) == ({"a": "b"}, "k")
    usage = response["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
    with server.client() as client:
        assert client.responses.create(model="gpt-5", input="hi").output_text == MARKDOWN


@pytest.mark.parametrize(
    ("options", "field", "kind"),
    [
        ({"reasoning": {"summary": "auto"}}, "summary", "summary_text"),
        ({"reasoning": {"effort": "low"}}, "content", "reasoning_text"),
    ],
)
def test_reasoning_is_shown_as_it_is_requested(
    server: Scripted, options: dict[str, Any], field: str, kind: str
) -> None:
    for output in (
        created(server, **options)["output"],
        streamed(server, **options)[-1]["response"]["output"],
    ):
        reasoning, message = output
        assert reasoning[field] == [{"type": kind, "text": "Let me see."}]
        assert message["content"][0]["text"] == MARKDOWN


def test_reasoning_that_was_not_requested_is_only_signed(server: Scripted) -> None:
    for options in ({}, {"reasoning": {"effort": "none"}}):
        reasoning = created(server, **options)["output"][0]
        assert set(reasoning) == {"id", "type", "summary", "encrypted_content"}
        assert not reasoning["summary"]


def test_a_stream_has_the_parts_of_the_whole(server: Scripted) -> None:
    events = streamed(server, reasoning={"summary": "auto"})
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:2] == ["created", "in_progress"]
    assert kinds[-1] == "completed"
    assert {events[i]["response"]["status"] for i in (0, 1)} == {"in_progress"}
    items = rebuilt(events)
    assert [item["text"] for item in items] == ["Let me see.", MARKDOWN]
    assert [item["item"] for item in items] == events[-1]["response"]["output"]


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_functions_and_custom_tools(calling: Scripted, *, stream: bool) -> None:
    if stream:
        events = streamed(calling, tools=TOOLS)
        items = rebuilt(events)
        assert [i["text"] for i in items[1:]] == ['{"path": "ä.txt", "limit": 3}', "*** Begin\n+ä"]
        response = events[-1]["response"]
        done = [e for e in events if e["type"] == "response.function_call_arguments.done"]
        assert [event["name"] for event in done] == ["read_file"]
    else:
        response = created(calling, tools=TOOLS)
    assert response["tools"] == [{**TOOLS[0], "strict": None}, TOOLS[1]]
    message, function, custom = response["output"]
    assert message["content"][0]["text"] == "Looking."
    assert function["name"] == "read_file"
    assert json.loads(function["arguments"]) == {"path": "ä.txt", "limit": 3}
    assert (custom["type"], custom["input"]) == ("custom_tool_call", "*** Begin\n+ä")


def test_the_client_sends_back_what_it_got(calling: Scripted) -> None:
    with calling.client() as client:
        first = client.responses.create(model="gpt-5", input="hi", tools=TOOLS)
        history: list[Any] = [{"role": "user", "content": "hi"}]
        history += [item.model_dump() for item in first.output]
        calls: list[Any] = list(first.output[1:])
        history += [
            {"type": "function_call_output", "call_id": calls[0].call_id, "output": "12:00"},
            {"type": "custom_tool_call_output", "call_id": calls[1].call_id, "output": "ok"},
        ]
        second = client.responses.create(model="gpt-5", input=history, tools=TOOLS)
    assert second.output_text == "It is noon."
    assert calling.backend.requests == [1, 4]


def test_the_stream_of_the_official_client(calling: Scripted) -> None:
    with (
        calling.client() as client,
        client.responses.stream(model="gpt-5", input="hi", tools=TOOLS) as events,
    ):
        kinds = [event.type for event in events]
        assert events.get_final_response().output_text == "Looking."
    assert kinds[-1] == "response.completed"
    assert "response.custom_tool_call_input.delta" in kinds


def test_an_answer_that_is_cut_is_incomplete() -> None:
    with scripted("text: one two three\nfinish: length") as server:
        response = created(server, max_output_tokens=2)
        events = streamed(server, max_output_tokens=2)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"
    assert events[-1]["type"] == "response.incomplete"


def test_an_empty_answer_is_an_empty_message() -> None:
    with scripted("text:") as server:
        for output in (
            created(server)["output"],
            streamed(server)[-1]["response"]["output"],
        ):
            assert [item["content"][0]["text"] for item in output] == [""]


def test_a_conversation_that_does_not_fit_is_refused() -> None:
    with scripted("context: 30\ntext: hi") as server, server.client() as client:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                client.responses.create(model="m", input="word " * 40, stream=stream)
            assert caught.value.code == "context_length_exceeded"
            assert caught.value.param == "input"
            assert "maximum context length is 30 tokens" in caught.value.message


def test_whole_turns_leave_if_the_request_allows_it() -> None:
    turns: list[dict[str, Any]] = []
    for number in range(6):
        turns.append({"role": "user", "content": "word " * 6, "id": f"msg_u{number}"})
        turns.append({"role": "assistant", "content": "yes", "id": f"msg_a{number}"})
    turns.append({"role": "user", "content": "last", "id": "msg_last"})
    with scripted("context: 64\ntext: hi") as server:
        whole = created(server, input=turns, truncation="auto")
        events = streamed(server, input=turns, truncation="auto")
    for response in (whole, events[-1]["response"]):
        assert response["truncation"] == "auto"
        evicted = response["truncated_items"]
        assert evicted == [item["id"] for item in turns[: len(evicted)]]
        assert len(evicted) % 2 == 0
        assert 0 < len(evicted) < len(turns)


def test_a_failure_behind_the_first_event_ends_the_response_as_failed() -> None:
    with scripted("text: one\nerror: upstream is gone") as server:
        events = streamed(server)
        assert events[-1]["type"] == "response.failed"
        failed = events[-1]["response"]
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
        assert failed["output"][0]["status"] == "incomplete"
        assert post(server, {}).status_code == 500


def test_input_tokens_are_counted(server: Scripted) -> None:
    with server.client() as client:
        short = client.responses.input_tokens.count(model="m", input="one two")
        long = client.responses.input_tokens.count(model="m", input="one two three", tools=TOOLS)
    assert short.object == "response.input_tokens"
    assert long.input_tokens == short.input_tokens + 1


@pytest.mark.parametrize("path", ["", "/resp_1", "/resp_1/input_items", "/resp_1/cancel"])
def test_errors_of_the_edge_have_openai_s_shape(server: Scripted, path: str) -> None:
    wrong = httpx.put(f"{server.url}{PATH}{path}", timeout=PATIENCE)
    assert wrong.status_code in (404, 405)
    assert set(wrong.json()["error"]) == {"message", "type", "param", "code"}


def test_a_request_needs_an_item(server: Scripted) -> None:
    nothing: list[Any] = [None, []]
    for value in nothing:
        answer = post(server, {"input": value})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


def test_the_path_without_its_version(server: Scripted) -> None:
    url = f"{server.url}/responses"
    assert httpx.post(url, json={"input": "hi"}, timeout=PATIENCE).json()["object"] == "response"
    assert httpx.post(url, json={}, timeout=PATIENCE).json()["error"]["param"] == "input"


def test_an_answer_is_parsed_by_the_official_client() -> None:
    class Weather(BaseModel):
        sunny: bool

    with scripted('text: "{\\"sunny\\": true}"') as server, server.client() as client:
        parsed = client.responses.parse(model="m", input="hi", text_format=Weather)
    assert parsed.output_parsed == Weather(sunny=True)


def test_the_event_of_an_error_fits_its_type() -> None:
    error = ApiError(400, "Too long.", "context_length_exceeded", "messages")
    data = json.loads(ResponsesErrors().event(error).split("data: ")[1])
    event = ResponseErrorEvent.model_validate(data, strict=True)
    assert (event.message, event.param) == ("Too long.", "input")


def test_response_checker_is_strict() -> None:
    with pytest.raises(ValueError):
        checked({"id": "resp_1", "object": "response"})
