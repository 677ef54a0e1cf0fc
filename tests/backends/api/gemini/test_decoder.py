"""Streamed answers of Gemini as deltas, and back."""

from typing import Any

from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api import stream
from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.gemini import GeminiAdapter, GeminiDecoder
from shepherd.events import FinishReason
from shepherd.messages import JsonObject, Message
from shepherd.session import Session
from tests.backends.api.conversations import assembled
from tests.backends.api.gemini.official import chunk, valid

RAW = {"OTHER", "NO_IMAGE", "CONTINUATION"}


def decoded(*chunks: JsonObject) -> tuple[list[stream.Delta], bool]:
    decoder = GeminiDecoder()
    deltas = [delta for data in chunks for delta in decoder.feed("", data)]
    return deltas, decoder.complete


def test_thoughts_text_and_usage() -> None:
    first: JsonObject = {"promptTokenCount": 90, "cachedContentTokenCount": 64}
    last: JsonObject = first | {"candidatesTokenCount": 7, "thoughtsTokenCount": 20}
    deltas, complete = decoded(
        chunk({"text": "Hm", "thought": True}, usageMetadata=first),
        chunk({"text": "Hel"}),
        chunk({"text": "lo"}, reason="STOP", usageMetadata=last),
    )
    assert deltas == [
        stream.Thinking("Hm"),
        stream.Usage(90, 64),
        stream.Text("Hel"),
        stream.Text("lo"),
        stream.Usage(90, 64, 27),
        stream.Stop(FinishReason.STOP),
    ]
    assert complete


def test_parallel_calls_with_and_without_ids() -> None:
    one: JsonObject = {"name": "read_file", "args": {"path": "Köln"}, "id": "fc-1"}
    deltas, complete = decoded(
        chunk({"functionCall": one, "thoughtSignature": "c2ln"}, {"functionCall": {"name": "t"}}),
        chunk({"text": ""}, reason="STOP"),
    )
    assert deltas == [
        stream.Call(
            0,
            "fc-1",
            "read_file",
            {"path": "Köln"},
            {"id": "fc-1", "thoughtSignature": "c2ln"},
        ),
        stream.Call(1, "", "t", {}),
        stream.Stop(FinishReason.TOOL_CALLS),
    ]
    assert complete


def test_every_reason_to_end_is_told() -> None:
    for reason in types.FinishReason:
        (stop,), complete = decoded(chunk(reason=reason.value))
        assert isinstance(stop, stream.Stop)
        assert complete
        ended = {"MAX_TOKENS": FinishReason.LENGTH}.get(reason.value, FinishReason.STOP)
        assert stop.reason is ended
        silent = reason.value in {"STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED"}
        assert bool(stop.note) is not silent
        known = reason.value not in RAW and not reason.value.startswith("IMAGE_")
        assert known is (reason.value not in stop.note), stop.note


def test_a_prompt_that_is_blocked_ends_the_answer() -> None:
    for reason in types.BlockedReason:
        feedback = {"blockReason": reason.value}
        (stop,), complete = decoded(valid({"promptFeedback": feedback}))
        assert isinstance(stop, stream.Stop)
        assert stop.note.startswith("Gemini refused to answer")
        assert complete


def test_an_error_in_the_stream_is_handed_on() -> None:
    error: JsonObject = {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}
    assert decoded(chunk({"text": "a"}), error)[0] == [stream.Text("a"), stream.Error(error, 503)]
    assert decoded({"error": "what"})[0] == [stream.Error({"error": "what"}, 500)]


def test_an_answer_without_an_end_is_not_complete() -> None:
    assert not decoded(chunk({"text": "a"}), valid({"usageMetadata": {}}))[1]


signatures = st.sampled_from(["c2ln", "c2lnMg==", ""])


def _part(signature: str, **fields: Any) -> JsonObject:
    return fields | ({"thoughtSignature": signature} if signature else {})


plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
said = st.builds(_part, signatures, text=plain) | st.builds(
    _part, signatures, text=plain, thought=st.just(value=True)
)
called = st.builds(
    _part,
    signatures,
    functionCall=st.sampled_from(["read_file", "list_files"]).map(
        lambda name: {"name": name, "args": {"n": 1}}
    ),
)


@given(st.lists(st.lists(said, max_size=2), max_size=4), st.lists(called, max_size=3))
def test_signed_parts_go_back_as_they_came(spoken: list[Any], calls: list[Any]) -> None:
    deltas, _ = decoded(*(chunk(*parts) for parts in spoken), chunk(*calls, reason="STOP"))
    message = assembled(deltas, "gemini")
    if not message.content.strip() and not calls:
        return  # says nothing, and is left out
    session = Session(messages=[Message.user("hi"), message])
    body = GeminiAdapter().chat(session, ModelTraits("gemini-2.5-pro"), 0).body
    assert body is not None
    back: list[JsonObject] = body["contents"][1]["parts"]
    parts = [part for parts in spoken for part in parts]
    assert [p for p in back if "functionCall" in p] == calls
    signed = [part for part in parts if "thoughtSignature" in part]
    assert [p for p in back if "text" in p and "thoughtSignature" in p] == signed
    assert "".join(p["text"] for p in back if "text" in p and not p.get("thought")) == (
        message.content
    )
    before = "".join(p["text"] for p in parts[: _first_signed(parts)] if not p.get("thought"))
    if signed and before:
        assert back[0] == {"text": before}


def _first_signed(parts: list[JsonObject]) -> int:
    return next((i for i, part in enumerate(parts) if "thoughtSignature" in part), 0)


FIELDS = [
    "candidates",
    "content",
    "parts",
    "text",
    "functionCall",
    "args",
    "error",
    "finishReason",
    "usageMetadata",
    "promptTokenCount",
    "promptFeedback",
    "blockReason",
    "thoughtSignature",
    "code",
]
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 600) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), anything, max_size=4), max_size=3))
def test_nothing_that_comes_breaks_it(chunks: list[JsonObject]) -> None:
    deltas, _ = decoded(*chunks)
    for delta in deltas:
        if isinstance(delta, stream.Call):
            assert isinstance(delta.arguments, dict)
