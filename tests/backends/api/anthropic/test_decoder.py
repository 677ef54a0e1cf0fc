"""Events of a stream become the deltas that they mean."""

from typing import Any

import pytest
from anthropic.types import Message

from shepherd.backends.api import stream
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.events import FinishReason
from shepherd.messages import JsonObject
from tests.backends.api.anthropic.schema import check_event
from tests.backends.api.anthropic.streams import (
    MODEL,
    answer,
    call,
    deltas_of,
    ended,
    redacted,
    started,
    text,
    thought,
)


def test_an_answer_with_thoughts_text_and_parallel_calls() -> None:
    events = answer(
        thought(0, "sig-1", "Two ", "files."),
        redacted(1, "opaque"),
        text(2, "I read ", "both."),
        call(3, "toolu_1", "read", '{"path"', ': "a"}'),
        thought(4, "sig-2"),
        call(5, "toolu_2", "read", "", '{"path": "b"}'),
    )
    kept = [
        {"type": "thinking", "thinking": "Two files.", "signature": "sig-1"},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "text", "length": 12},
        {"type": "tool_use"},
        {"type": "thinking", "thinking": "", "signature": "sig-2"},
        {"type": "tool_use"},
    ]
    deltas = deltas_of(events)
    assert deltas_of(events, names=False) == deltas
    assert deltas == [
        stream.Usage(10, None, 1),
        stream.Thinking("Two "),
        stream.Thinking("files."),
        stream.Text("I read "),
        stream.Text("both."),
        stream.Call(3, "toolu_1", "read"),
        stream.Call(3, arguments='{"path"'),
        stream.Call(3, arguments=': "a"}'),
        stream.Call(5, "toolu_2", "read"),
        stream.Call(5, arguments=""),
        stream.Call(5, arguments='{"path": "b"}'),
        stream.Usage(10, None, 7),
        stream.Extra({"model": MODEL, "blocks": kept}),
        stream.Stop(FinishReason.TOOL_CALLS),
    ]


def test_prompt_tokens_are_those_read_from_and_written_to_the_cache_too() -> None:
    start = started(cache_read_input_tokens=300, cache_creation_input_tokens=20)
    events = [check_event(e) for e in [start, *text(0, "Hi"), *ended()]]
    counts = [delta for delta in deltas_of(events) if isinstance(delta, stream.Usage)]
    assert counts == [stream.Usage(330, 300, 1), stream.Usage(330, 300, 7)]


def test_a_call_without_arguments_and_one_whose_arguments_come_at_once() -> None:
    whole = call(1, "toolu_2", "sum")
    whole[0]["content_block"]["input"] = {"a": 1}
    deltas = deltas_of(answer(call(0, "toolu_1", "now"), whole))
    assert [delta for delta in deltas if isinstance(delta, stream.Call)] == [
        stream.Call(0, "toolu_1", "now"),
        stream.Call(0, arguments="{}"),
        stream.Call(1, "toolu_2", "sum"),
        stream.Call(1, arguments='{"a": 1}'),
    ]


@pytest.mark.parametrize(
    ("reason", "finish", "note"),
    [
        ("end_turn", FinishReason.STOP, ""),
        ("stop_sequence", FinishReason.STOP, ""),
        ("max_tokens", FinishReason.LENGTH, ""),
        ("tool_use", FinishReason.TOOL_CALLS, ""),
        ("model_context_window_exceeded", FinishReason.LENGTH, "context is full"),
        ("pause_turn", FinishReason.STOP, "paused"),
        ("refusal", FinishReason.STOP, "safety filter ended the answer."),
    ],
)
def test_every_reason_to_stop(reason: str, finish: FinishReason, note: str) -> None:
    events = [check_event(event) for event in [started(), *ended(reason)]]
    stop = deltas_of(events)[-1]
    assert isinstance(stop, stream.Stop)
    assert stop.reason is finish
    assert bool(stop.note) == bool(note)
    assert note in stop.note


def test_a_refusal_says_why() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It may do harm."}
    events = [check_event(event) for event in [started(), *ended("refusal", details)]]
    stop = deltas_of(events)[-1]
    assert isinstance(stop, stream.Stop)
    assert stop.note == "The provider's safety filter ended the answer: cyber: It may do harm."


def test_it_is_complete_after_its_last_event_and_not_before() -> None:
    decoder = AnthropicAdapter().decoder()
    *events, last = answer(text(0, "Hi"))
    for event in events:
        decoder.feed(event["type"], event)
        assert not decoder.complete
    decoder.feed(last["type"], last)
    assert decoder.complete


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}, 429),
        ({"type": "error", "error": {"type": "something_new", "message": "?"}}, 500),
        ({"code": 400, "message": "too long", "type": "exceed_context_size_error"}, 400),
    ],
)
def test_an_error_in_the_stream_comes_as_it_is(error: JsonObject, status: int) -> None:
    decoder = AnthropicAdapter().decoder()
    assert decoder.feed("error", error) == [stream.Error(error, status)]
    assert not decoder.complete


def test_blocks_and_events_of_other_kinds_say_nothing() -> None:
    server: JsonObject = {
        "type": "server_tool_use",
        "id": "srv_1",
        "name": "web_search",
        "input": {},
    }
    events: list[JsonObject] = [
        {"type": "content_block_start", "index": 0, "content_block": server},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"query":'},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "ping"},
        {"type": "a_new_event", "index": 0},
    ]
    assert deltas_of(events) == []


def test_a_server_that_leaves_out_starts_and_signatures() -> None:
    """As llama.cpp's server streams: no signature, no `input`, one index for two blocks."""
    events: list[JsonObject] = [
        started("local.gguf"),
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "Hm."},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "a", "name": "now"},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "!"}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": ""},
        },
        *ended("tool_use"),
    ]
    assert deltas_of(events) == [
        stream.Usage(10, None, 1),
        stream.Thinking("Hm."),
        stream.Text("Hi"),
        stream.Call(2, "a", "now"),
        stream.Text("!"),
        stream.Usage(10, None, 7),
        stream.Call(2, arguments="{}"),
        stream.Stop(FinishReason.TOOL_CALLS),
    ]


def test_the_stop_string_is_named() -> None:
    *before, delta, last = [started(), *ended("stop_sequence")]
    delta["delta"]["stop_sequence"] = "END"
    assert deltas_of([*before, delta, last])[-1] == stream.Stop(
        FinishReason.STOP, stop_string="END"
    )


def test_a_server_that_does_not_stream() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
    blocks = [{"type": "text", "text": "I read a."}, use]
    more = {"content": blocks, "stop_reason": "tool_use"}
    message = started()["message"] | more
    Message.model_validate(message)
    decoder = AnthropicAdapter().decoder()
    assert decoder.feed("", message) == [
        stream.Usage(10, None, 1),
        stream.Text("I read a."),
        stream.Call(1, "toolu_1", "read"),
        stream.Call(1, arguments='{"path": "a"}'),
        stream.Stop(FinishReason.TOOL_CALLS),
    ]
    assert decoder.complete


WRONG: list[Any] = [None, 7, "text", [], {"type": 3}, {"type": "text_delta", "text": 9}]


@pytest.mark.parametrize("wrong", WRONG)
def test_fields_of_a_wrong_type_give_nothing(wrong: Any) -> None:
    decoder = AnthropicAdapter().decoder()
    names = ("message", "content_block", "delta", "usage", "index", "type")
    for kind in ("message_start", "content_block_start", "content_block_delta", "message_delta"):
        assert decoder.feed(kind, dict.fromkeys(names, wrong)) == []
