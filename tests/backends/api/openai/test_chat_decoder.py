"""Answers of chat completions, of OpenAI's and of those that do it in their own way."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api import stream
from shepherd.backends.api.openai.chat_decoder import FILTERED, REFUSED, ChatDecoder
from shepherd.events import FinishReason
from shepherd.messages import JsonObject
from shepherd.sampling import TokenLogprob, TokenProbability
from tests.backends.api.openai.answers import Told, told
from tests.backends.api.openai.official import chunk, completion, fed, said

ARGUMENTS = '{"city": "Köln", "days": [1, 2]}'
USAGE: JsonObject = {
    "prompt_tokens": 10,
    "completion_tokens": 4,
    "total_tokens": 14,
    "prompt_tokens_details": {"cached_tokens": 6},
}


def answer(*events: JsonObject) -> Told:
    return told(fed(ChatDecoder(), *events))


def fragment(index: Any = 0, arguments: Any = "", **more: Any) -> JsonObject:
    """A piece of a call, in the form of OpenAI's or not."""
    name = more.pop("name", None)
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"index": index, "function": function, **more}


def wild(finish: Any = None, **delta: Any) -> JsonObject:
    """A chunk that OpenAI's types might refuse."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_a_text_and_its_usage() -> None:
    decoder = ChatDecoder()
    deltas = fed(decoder, said(role="assistant", content=""), said(content="Hel"))
    deltas += fed(decoder, said(content="lo"))
    assert not decoder.complete
    deltas += fed(decoder, said("stop"))
    assert decoder.complete
    deltas += fed(decoder, chunk(usage=USAGE), chunk())
    assert deltas == [
        stream.Text("Hel"),
        stream.Text("lo"),
        stream.Stop(FinishReason.STOP),
        stream.Usage(10, 6, 4),
    ]


@given(places=st.lists(st.integers(0, len(ARGUMENTS)), max_size=8), strict=st.booleans())
def test_a_call_is_the_same_however_it_is_cut(*, places: list[int], strict: bool) -> None:
    pieces = [ARGUMENTS[a:b] for a, b in pairwise([0, *sorted(places), len(ARGUMENTS)])]
    head = fragment(0, "", id="call_1", type="function", name="weather")
    rest = [fragment(0, piece) for piece in pieces]
    events = [said(tool_calls=[head]), *(said(tool_calls=[piece]) for piece in rest)]
    if not strict:
        empty = {"id": None, "type": None, "function": {"name": None}}
        events.insert(2, wild(tool_calls=[{"index": 0, **empty}]))
    found = answer(*events, said("tool_calls"))
    assert found.calls == [["call_1", "weather", ARGUMENTS]]
    assert found.stops == [stream.Stop(FinishReason.TOOL_CALLS)]


BOTH = [["a", "one", '{"x":1}'], ["b", "two", "{}"]]


@pytest.mark.parametrize(
    "fragments",
    [
        pytest.param(
            [
                fragment(0, id="a", name="one"),
                fragment(1, id="b", name="two"),
                fragment(0, '{"x"'),
                fragment(1, "{}"),
                fragment(0, ":1}"),
            ],
            id="interleaved",
        ),
        pytest.param(
            [fragment(0, '{"x":1}', id="a", name="one"), fragment(0, "{}", id="b", name="two")],
            id="every index 0",
        ),
        pytest.param(
            [
                fragment(None, '{"x"', id="a", name="one"),
                fragment(None, ":1}", id="a"),
                fragment(None, "{}", id="b", name="two"),
            ],
            id="no index",
        ),
        pytest.param(
            [
                fragment(None, '{"x"', id="a", name="one"),
                fragment(None, ":1}"),
                fragment(None, "{}", id="b", name="two"),
            ],
            id="neither index nor id",
        ),
        pytest.param(
            [
                fragment(0, '{"x"', id="a", name="one"),
                fragment(0, ":1}", id="", name=""),
                fragment(1, "{}", id="b", name="two"),
            ],
            id="empty id and name",
        ),
        pytest.param(
            [
                fragment(0, '{"x"', id="a", name="one"),
                fragment(0, ":1}", id="a", name="one"),
                fragment(1, "{}", id="b", name="two"),
            ],
            id="id and name again and again",
        ),
        pytest.param(
            [
                fragment(0, '{"x"', id="a", name="one"),
                fragment(0, ":1}", id="other"),
                fragment(1, "{}", id="b", name="two"),
            ],
            id="another id for each piece",
        ),
        pytest.param(
            [fragment(3, '{"x":1}', id="a", name="one"), fragment(7, "{}", id="b", name="two")],
            id="indices from anywhere",
        ),
        pytest.param(
            [fragment(0, {"x": 1}, id="a", name="one"), fragment(1, {}, id="b", name="two")],
            id="objects",
        ),
    ],
)
def test_two_calls_are_told_apart(fragments: list[JsonObject]) -> None:
    found = answer(*(wild(tool_calls=[piece]) for piece in fragments), said("tool_calls"))
    assert [[i, n, t.replace(": ", ":")] for i, n, t in found.calls] == BOTH
    assert answer(wild(tool_calls=fragments)).calls == found.calls


def test_calls_without_ids_are_told_by_their_names() -> None:
    fragments = [fragment(None, "{}", name="one"), fragment(None, "{}", name="one")]
    assert answer(wild(tool_calls=fragments)).calls == [["", "one", "{}"], ["", "one", "{}"]]


def test_arguments_that_are_neither_text_nor_an_object_give_nothing() -> None:
    calls = {"tool_calls": [{"index": 0, "function": {"arguments": 7}}]}
    event: JsonObject = {"choices": [{"index": 0, "delta": calls}]}
    assert [*ChatDecoder().feed("", event)] == []


def test_the_old_form_of_a_call() -> None:
    events = [said(function_call={"name": "one", "arguments": "{"})]
    events += [said(function_call={"arguments": "}"}), said("function_call")]
    found = answer(*events)
    assert found.calls == [["", "one", "{}"]]
    assert found.stops == [stream.Stop(FinishReason.TOOL_CALLS)]


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"content": [{"type": "thinking", "thinking": "hm"}]},
    ],
    ids=str,
)
def test_thoughts_come_in_many_fields(delta: JsonObject) -> None:
    found = answer(wild(**delta), wild(content="so", reasoning=None, reasoning_content=""))
    assert (found.thought, found.text) == ("hm", "so")


def test_details_of_the_reasoning_are_put_together_and_kept() -> None:
    pieces = [
        {"type": "reasoning.text", "text": "h", "index": 0, "format": "anthropic"},
        {"type": "reasoning.text", "text": "m", "index": 0},
        {"type": "reasoning.text", "text": None, "index": 0, "signature": "sig"},
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
    ]
    found = answer(*(wild(reasoning_details=[piece]) for piece in pieces), wild("stop"))
    whole = {"type": "reasoning.text", "text": "hm", "index": 0, "format": "anthropic"}
    assert found.extra == [{"reasoning_details": [{**whole, "signature": "sig"}, pieces[3]]}]
    assert found.thought == "hm"


def test_content_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c", None]
    assert answer(wild(content=parts)).text == "ab"


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", stream.Stop(FinishReason.STOP)),
        ("length", stream.Stop(FinishReason.LENGTH)),
        ("tool_calls", stream.Stop(FinishReason.TOOL_CALLS)),
        ("content_filter", stream.Stop(FinishReason.STOP, FILTERED)),
        ("eos", stream.Stop(FinishReason.STOP)),
        ("error", stream.Stop(FinishReason.ERROR)),
    ],
)
def test_reasons_to_end(reason: str, stop: stream.Stop) -> None:
    decoder = ChatDecoder()
    assert fed(decoder, wild(""), wild(None)) == []
    assert fed(decoder, wild(reason), wild(reason)) == [stop]


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop"])
@pytest.mark.parametrize(("value", "text"), [("END", "END"), (151645, ""), (None, "")])
def test_some_servers_name_the_stop_string(field: str, value: Any, text: str) -> None:
    event = wild("stop")
    event["choices"][0][field] = value
    assert fed(ChatDecoder(), event) == [stream.Stop(FinishReason.STOP, stop_string=text)]


def test_calls_are_the_reason_whatever_the_server_says() -> None:
    found = answer(wild("stop", tool_calls=[fragment(0, "{}", id="a", name="one")]))
    assert found.stops == [stream.Stop(FinishReason.TOOL_CALLS)]


def test_a_refusal_is_shown_and_noted() -> None:
    found = answer(said(refusal="I "), said(refusal="won't."), said("stop"))
    assert found.text == "I won't."
    assert found.stops == [stream.Stop(FinishReason.STOP, REFUSED)]


@pytest.mark.parametrize(
    ("event", "usage"),
    [
        (chunk(usage=USAGE), stream.Usage(10, 6, 4)),
        ({"choices": [{"delta": {}, "usage": USAGE}]}, stream.Usage(10, 6, 4)),
        ({"choices": [], "x_groq": {"usage": USAGE}}, stream.Usage(10, 6, 4)),
        ({"usage": {"prompt_tokens": 7, "prompt_cache_hit_tokens": 3}}, stream.Usage(7, 3, None)),
        ({"usage": {"prompt_tokens": "7", "completion_tokens": 0}}, stream.Usage(None, None, 0)),
    ],
)
def test_usage_is_found(event: JsonObject, usage: stream.Usage) -> None:
    assert answer(event).usage == [usage]


def test_no_usage_says_nothing() -> None:
    assert fed(ChatDecoder(), said(content="a") | {"usage": None}) == [stream.Text("a")]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"message": "no", "code": 502}}, 502),
        ({"error": {"message": "no", "code": "429"}}, 429),
        ({"error": {"message": "no", "type": "invalid_request_error"}}, 400),
        ({"error": {"message": "no", "code": "context_length_exceeded"}}, 400),
        ({"error": {"message": "no", "type": "exceed_context_size_error", "code": 400}}, 400),
        ({"error": {"message": "no", "code": "rate_limit_exceeded"}}, 429),
        ({"error": {"message": "no", "type": "server_error", "code": None}}, 500),
        ({"error": {"message": "no", "code": "invalid_api_key"}}, 401),
        ({"object": "error", "message": "no", "code": 400}, 400),
        ({"error": "no"}, 500),
    ],
)
def test_an_error_in_the_stream(body: JsonObject, status: int) -> None:
    decoder = ChatDecoder()
    error = told(fed(decoder, said(content="a"), body)).errors[0]
    assert (error.body, error.status) == (body, status)
    assert not decoder.complete


def test_a_whole_answer_to_a_streamed_request() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "one", "arguments": ARGUMENTS}}
    message = {"content": "So.", "tool_calls": [call, {**call, "id": "b"}]}
    found = answer(completion(message | {"reasoning_content": "hm"}, "tool_calls", usage=USAGE))
    assert (found.text, found.thought) == ("So.", "hm")
    assert found.calls == [["a", "one", ARGUMENTS], ["b", "one", ARGUMENTS]]
    assert found.usage == [stream.Usage(10, 6, 4)]
    assert found.stops == [stream.Stop(FinishReason.TOOL_CALLS)]


def test_a_whole_message_behind_the_stream_is_not_told_again() -> None:
    last = {"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}
    assert answer(said(content="hi"), last).text == "hi"


def test_only_the_first_choice_counts() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]}
    assert fed(ChatDecoder(), said(content="a"), other) == [stream.Text("a")]


def test_log_probabilities_come_with_their_text() -> None:
    top = {"token": "b", "logprob": -2.0, "bytes": None}
    token = {"token": "ö", "logprob": -0.5, "bytes": [195, 182], "top_logprobs": [top]}
    choice = {"delta": {"content": "ö"}, "logprobs": {"content": [token], "refusal": None}}
    told_of = TokenLogprob("ö".encode(), -0.5, (TokenProbability(b"b", -2.0),))
    assert fed(ChatDecoder(), chunk(choice)) == [stream.Text("ö", (told_of,))]


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("choices", "delta", "message", "content", "tool_calls", "function", "index"),
                    *("id", "name", "arguments", "usage", "error", "code", "finish_reason"),
                    *("reasoning", "reasoning_details", "refusal", "logprobs", "text", "type"),
                    *("bytes", "token", "logprob", "top_logprobs", "prompt_tokens", "object"),
                    *("thinking", "function_call", "x_groq", "data", "prompt_tokens_details"),
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


def chunk_with(key: str, value: Any) -> JsonObject:
    return {"choices": [{key: value}] if key == "delta" else [value]}


tops = st.sampled_from(["choices", "usage", "error", "object"])
wild_chunks: st.SearchStrategy[JsonObject] = st.dictionaries(tops, values, max_size=3)
wild_choices = st.builds(chunk_with, st.sampled_from(["delta", "choice"]), values)


@given(st.lists(wild_chunks | wild_choices, max_size=4))
def test_nothing_that_comes_is_a_failure(events: list[JsonObject]) -> None:
    heard = answer(*events, wild(content="[end]"))
    assert heard.text.endswith("[end]")
    assert {type(part) for call in heard.calls for part in call} <= {str}
