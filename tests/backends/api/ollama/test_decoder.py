"""Streamed answers of Ollama as deltas."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api import stream
from shepherd.backends.api.ollama import OllamaDecoder
from shepherd.events import FinishReason
from shepherd.messages import JsonObject
from shepherd.sampling import TokenLogprob, TokenProbability
from tests.backends.api.ollama.official import line


def decoded(*lines: JsonObject) -> tuple[list[stream.Delta], bool]:
    decoder = OllamaDecoder()
    deltas = [delta for data in lines for delta in decoder.feed("", data)]
    return deltas, decoder.complete


def test_cached_tokens_and_log_probabilities() -> None:
    token = {"token": "Hi", "logprob": -0.5, "top_logprobs": [{"token": "Yo", "logprob": -1.5}]}
    deltas, _ = decoded(
        line("Hi", logprobs=[token]),
        line(done=True, prompt_eval_count=40, prompt_eval_cached_count=32, eval_count=1),
    )
    assert deltas[:2] == [
        stream.Text("Hi", (TokenLogprob(b"Hi", -0.5, (TokenProbability(b"Yo", -1.5),)),)),
        stream.Usage(40, 32, 1),
    ]


def call(name: str, **arguments: object) -> JsonObject:
    return {"function": {"name": name, "arguments": arguments}}


def test_thoughts_text_and_usage() -> None:
    deltas, complete = decoded(
        line(thinking="Hm"),
        line("Hel"),
        line("lo"),
        line(done=True, done_reason="stop", prompt_eval_count=26, eval_count=9),
    )
    assert deltas == [
        stream.Thinking("Hm"),
        stream.Text("Hel"),
        stream.Text("lo"),
        stream.Usage(26, completion_tokens=9),
        stream.Stop(FinishReason.STOP),
    ]
    assert complete


def test_parallel_calls_in_one_line_and_in_two() -> None:
    deltas, _ = decoded(
        line(tool_calls=[call("a", n=1), call("b")]),
        line(tool_calls=[{"id": "call_x"} | call("a", s="Köln")]),
        line(done=True, done_reason="stop", eval_count=9),
    )
    assert deltas == [
        stream.Call(0, "", "a", {"n": 1}),
        stream.Call(1, "", "b", {}),
        stream.Call(2, "call_x", "a", {"s": "Köln"}),
        stream.Usage(completion_tokens=9),
        stream.Stop(FinishReason.TOOL_CALLS),
    ]


@pytest.mark.parametrize(
    ("reason", "ended", "noted"),
    [
        ("stop", FinishReason.STOP, False),
        ("length", FinishReason.LENGTH, False),
        ("load", FinishReason.STOP, True),
        ("unload", FinishReason.STOP, True),
        (None, FinishReason.STOP, False),
    ],
)
def test_reasons_to_end(reason: str | None, ended: FinishReason, noted: object) -> None:
    (stop,), complete = decoded(line(done=True, done_reason=reason))
    assert isinstance(stop, stream.Stop)
    assert (stop.reason, stop.note != "", complete) == (ended, noted, True)


def test_an_error_line_is_handed_on() -> None:
    error: JsonObject = {"error": "model runner has unexpectedly stopped"}
    deltas, complete = decoded(line("a"), error)
    assert deltas == [stream.Text("a"), stream.Error(error, 500)]
    assert complete
    assert decoded({"error": "no", "status_code": 429})[0] == [
        stream.Error({"error": "no", "status_code": 429}, 429)
    ]


def test_an_answer_without_an_end_is_not_complete() -> None:
    assert not decoded(line("a"), line(""))[1]


FIELDS = ["message", "content", "thinking", "tool_calls", "function", "name", "arguments"]
ENDS = ["done", "done_reason", "error", "eval_count", "prompt_eval_count", "id"]
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 600) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(FIELDS + ENDS), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS + ENDS), anything, max_size=4), max_size=3))
def test_nothing_that_comes_breaks_it(lines: list[dict[str, Any]]) -> None:
    deltas, complete = decoded(*lines)
    stops = [delta for delta in deltas if isinstance(delta, stream.Stop)]
    assert len(stops) <= complete
    json.dumps([delta.text for delta in deltas if isinstance(delta, stream.Text | stream.Thinking)])
