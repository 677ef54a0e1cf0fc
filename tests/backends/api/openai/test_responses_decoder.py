"""Answers of the responses API."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api import stream
from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.openai.chat_decoder import FILTERED, REFUSED
from shepherd.backends.api.openai.responses import OpenAIResponsesAdapter, ResponsesDecoder
from shepherd.events import FinishReason
from shepherd.messages import JsonObject, Message
from shepherd.session import Session
from tests.backends.api.openai.answers import Told, told
from tests.backends.api.openai.official import event, fed, response, valid_responses

ARGUMENTS = '{"city": "Köln", "days": [1, 2]}'
REASONING: JsonObject = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [
        {"type": "summary_text", "text": "First."},
        {"type": "summary_text", "text": "Then."},
    ],
    "encrypted_content": "gAAA",
}
MESSAGE: JsonObject = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
}
CALL: JsonObject = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "weather",
    "arguments": ARGUMENTS,
    "status": "completed",
}
USAGE: JsonObject = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 0},
    "output_tokens": 4,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 14,
}


def answer(*events: JsonObject) -> Told:
    return told(fed(ResponsesDecoder(), *events))


def item(kind: str, index: int, content: JsonObject) -> JsonObject:
    return event(f"response.output_item.{kind}", output_index=index, item=content)


def text(index: int, piece: str) -> JsonObject:
    where = {"item_id": "msg_1", "output_index": index, "content_index": 0}
    return event("response.output_text.delta", delta=piece, logprobs=[], **where)


def thought(index: int, part: int, piece: str) -> JsonObject:
    where = {"item_id": "rs_1", "output_index": index, "summary_index": part}
    return event("response.reasoning_summary_text.delta", delta=piece, **where)


def arguments(index: int, piece: str) -> JsonObject:
    where = {"item_id": "fc_1", "output_index": index}
    return event("response.function_call_arguments.delta", delta=piece, **where)


def ended(status: str = "completed", output: list[JsonObject] | None = None, **more: Any) -> Any:
    return event(f"response.{status}", response=response(status, output or [], **more))


STREAM = [
    item("added", 0, {**REASONING, "summary": []}),
    thought(0, 0, "Fir"),
    thought(0, 0, "st."),
    thought(0, 1, "Then."),
    item("done", 0, REASONING),
    item("added", 1, {**MESSAGE, "content": [], "status": "in_progress"}),
    text(1, "Hel"),
    text(1, "lo"),
    item("done", 1, MESSAGE),
    item("added", 2, {**CALL, "arguments": "", "status": "in_progress"}),
    arguments(2, ARGUMENTS[:7]),
    arguments(2, ARGUMENTS[7:]),
    event(
        "response.function_call_arguments.done",
        arguments=ARGUMENTS,
        item_id="fc_1",
        output_index=2,
        name="weather",
    ),
    item("done", 2, CALL),
    ended(output=[REASONING, MESSAGE, CALL], usage=USAGE),
]
WHOLE = Told(
    "Hello",
    "First.\n\nThen.",
    [["call_1", "weather", ARGUMENTS]],
    [stream.Usage(10, 6, 4)],
    [stream.Stop(FinishReason.TOOL_CALLS)],
    [],
    [
        {
            "items": [
                REASONING,
                {"type": "message", "length": 5, "phase": "commentary"},
                {"type": "function_call"},
            ]
        }
    ],
)


def test_a_stream_is_told_once() -> None:
    assert answer(*STREAM) == WHOLE


def test_what_was_not_streamed_is_told_in_the_end() -> None:
    assert answer(*(e for e in STREAM if "delta" not in e)) == WHOLE
    assert answer(STREAM[-1]) == WHOLE
    assert answer(STREAM[-1]["response"]) == WHOLE


@given(st.sets(st.integers(0, len(STREAM) - 2)))
def test_events_that_are_left_out_cost_nothing_that_comes_again(left_out: set[int]) -> None:
    """Only pieces may be missing whose whole is told later."""
    gone = {i for i in left_out if "delta" not in STREAM[i]}
    assert answer(*(e for i, e in enumerate(STREAM) if i not in gone)) == WHOLE


@given(st.lists(st.integers(0, len(ARGUMENTS)), max_size=8))
def test_a_call_is_the_same_however_it_is_cut(places: list[int]) -> None:
    cuts = pairwise([0, *sorted(places), len(ARGUMENTS)])
    pieces = [arguments(2, ARGUMENTS[a:b]) for a, b in cuts]
    assert answer(*STREAM[:10], *pieces, *STREAM[12:]) == WHOLE


def test_it_is_complete_when_all_was_told() -> None:
    decoder = ResponsesDecoder()
    for past in STREAM:
        assert not decoder.complete
        fed(decoder, past)
    assert decoder.complete


def test_what_came_goes_back_and_openai_takes_it() -> None:
    adapter = OpenAIResponsesAdapter()
    said = answer(*STREAM).message(adapter.name)
    history = [Message.user("hi"), said, Message.tool(said.tool_calls[0], "rain")]
    request = adapter.chat(Session("", history), ModelTraits("gpt-5"), 0)
    assert request.body is not None
    phased = {"type": "message", "role": "assistant", "content": "Hello", "phase": "commentary"}
    assert valid_responses(request.body)["input"][1:4] == [
        REASONING,
        phased,
        {key: CALL[key] for key in ("type", "call_id", "name", "arguments")},
    ]


def test_parallel_calls() -> None:
    other = {**CALL, "call_id": "call_2", "id": "fc_2"}
    events = [
        item("added", 0, {**CALL, "arguments": ""}),
        item("added", 1, {**other, "arguments": ""}),
    ]
    events += [arguments(1, ARGUMENTS[:3]), arguments(0, ARGUMENTS), arguments(1, ARGUMENTS[3:])]
    found = answer(*events, ended(output=[CALL, other]))
    assert found.calls == [["call_1", "weather", ARGUMENTS], ["call_2", "weather", ARGUMENTS]]


@pytest.mark.parametrize(
    ("last", "stop"),
    [
        (ended(), stream.Stop(FinishReason.STOP)),
        (
            ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            stream.Stop(FinishReason.LENGTH),
        ),
        (
            ended("incomplete", incomplete_details={"reason": "content_filter"}),
            stream.Stop(FinishReason.STOP, FILTERED),
        ),
    ],
    ids=["completed", "length", "filter"],
)
def test_reasons_to_end(last: JsonObject, stop: stream.Stop) -> None:
    assert fed(ResponsesDecoder(), text(0, "a"), last) == [stream.Text("a"), stop]


def test_a_refusal_is_shown_and_noted() -> None:
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    found = answer(event("response.refusal.delta", delta="No.", **where), ended())
    assert (found.text, found.stops) == ("No.", [stream.Stop(FinishReason.STOP, REFUSED)])
    whole = {**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}
    assert answer(ended(output=[whole])).text == "No."


def test_a_failure() -> None:
    error = {"code": "rate_limit_exceeded", "message": "slow down"}
    failed = answer(ended("failed", error=error))
    assert (failed.errors[0].body, failed.errors[0].status) == ({"error": error}, 429)
    assert not failed.stops
    told_apart = event("error", code="server_error", message="oops", param=None)
    assert answer(told_apart).errors[0].status == 500
    assert (
        answer({"type": "error", "error": {"type": "invalid_request_error"}}).errors[0].status
        == 400
    )
    assert answer({"error": {"message": "no", "code": 404}}).errors[0].status == 404


def test_open_models_tell_their_thoughts_in_full() -> None:
    where = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    streamed = event("response.reasoning_text.delta", delta="hm", **where)
    content = [{"type": "reasoning_text", "text": "hm"}]
    whole = {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}
    assert answer(streamed, item("done", 0, whole)).thought == "hm"
    assert answer(item("done", 0, whole)).thought == "hm"


def test_events_may_be_named_by_the_framing_only() -> None:
    unnamed = {key: value for key, value in text(0, "a").items() if key != "type"}
    assert list(ResponsesDecoder().feed("response.output_text.delta", unnamed)) == [
        stream.Text("a")
    ]


def test_unknown_events_say_nothing() -> None:
    assert fed(ResponsesDecoder(), {"type": "response.created"}, {"type": "keepalive"}, {}) == []


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("type", "item", "delta", "output_index", "item_id", "response", "output"),
                    *("content", "summary", "text", "usage", "error", "code", "arguments"),
                    *("call_id", "name", "logprobs", "status", "incomplete_details", "refusal"),
                ]
            ),
            inner | st.sampled_from(["message", "function_call", "reasoning"]),
            max_size=5,
        )
    ),
    max_leaves=30,
)
kinds = st.sampled_from(sorted({e["type"] for e in STREAM}))


fields = st.sampled_from(["item", "delta", "output_index", "item_id", "response", "arguments"])


@given(st.lists(st.tuples(kinds, st.dictionaries(fields, values, max_size=4)), max_size=4))
def test_nothing_that_comes_is_a_failure(events: list[tuple[str, JsonObject]]) -> None:
    heard = answer(*({**fields, "type": kind} for kind, fields in events), text(600, "[end]"))
    assert heard.text.endswith("[end]")
    assert {type(part) for call in heard.calls for part in call} <= {str}


def test_items_without_a_place_are_told_once() -> None:
    """llama.cpp's events name items by their ids alone."""

    def of(kind: str, id: str, **fields: Any) -> JsonObject:
        return {"type": f"response.{kind}", "item_id": id, **fields}

    thoughts = [{"type": "reasoning_text", "text": "Hm."}]
    done: list[JsonObject] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": thoughts},
        MESSAGE,
        CALL,
    ]
    added = {**CALL, "arguments": ""}
    heard = answer(
        of("reasoning_text.delta", "rs_1", delta="Hm."),
        of("output_text.delta", "msg_1", delta="Hello"),
        {"type": "response.output_item.added", "item": added},
        of("function_call_arguments.delta", "fc_1", delta=ARGUMENTS),
        *({"type": "response.output_item.done", "item": item} for item in done),
        {"type": "response.completed", "response": response("completed", done)},
    )
    assert (heard.thought, heard.text) == ("Hm.", "Hello")
    assert heard.calls == [["call_1", "weather", ARGUMENTS]]
