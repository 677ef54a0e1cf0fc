"""Conversations as Gemini's contents."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.answer import Answer
from shepherd.backends.api.gemini import GeminiAdapter
from shepherd.backends.api.gemini_request import SKIP_SIGNATURE
from shepherd.events import Stats, ignore_events
from shepherd.messages import JsonObject, Message, ToolCall
from shepherd.session import Session
from tests.backends.api.conversations import conversations, texts
from tests.backends.api.gemini.official import check_body

OLD, NEW = ModelTraits("gemini-2.5-pro"), ModelTraits("gemini-3-pro-preview")

READ = ToolCall("a", "read_file", {"path": "x"})
LIST = ToolCall("b", "list_files", {})
SIGNED: dict[str, JsonObject] = {"gemini": {"id": "fc-1", "thoughtSignature": "c2ln"}}


def contents(*messages: Message, model: ModelTraits = OLD) -> list[JsonObject]:
    body = GeminiAdapter().chat(Session(messages=list(messages)), model, 0).body
    check_body(body)
    assert body is not None
    return body["contents"]


@given(texts, conversations, st.sampled_from([OLD, NEW]))
def test_any_conversation_is_valid(system: str, told: list[Message], model: ModelTraits) -> None:
    body = GeminiAdapter().chat(Session(system, told), model, 0).body
    for content in check_body(body):
        called = [part for part in content.parts or [] if part.function_call]
        assert model is OLD or all(part.thought_signature for part in called[:1])


def test_parallel_results_are_one_content_in_the_order_of_the_calls() -> None:
    asked = Message.assistant("Let me look.", tool_calls=(READ, LIST))
    late, early = Message.tool(READ, "text"), Message.tool(LIST, "x, y")
    told = contents(Message.user("hi"), asked, early, late, Message.user("well?"))
    assert told == [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Let me look."},
                {"functionCall": {"name": "read_file", "args": {"path": "x"}}},
                {"functionCall": {"name": "list_files", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "read_file", "response": {"output": "text"}}},
                {"functionResponse": {"name": "list_files", "response": {"output": "x, y"}}},
                {"text": "well?"},
            ],
        },
    ]


def test_ids_and_signatures_go_back_where_they_came_from() -> None:
    own = replace(READ, extra=SIGNED)
    asked = Message.assistant("", tool_calls=(own, LIST))
    told = contents(
        Message.user("hi"), asked, Message.tool(own, "1"), Message.tool(LIST, "2"), model=NEW
    )
    assert told[1]["parts"] == [
        {
            "functionCall": {"id": "fc-1", "name": "read_file", "args": {"path": "x"}},
            "thoughtSignature": "c2ln",
        },
        {"functionCall": {"name": "list_files", "args": {}}},
    ]
    assert [p["functionResponse"].get("id") for p in told[2]["parts"]] == ["fc-1", None]


def test_the_first_of_another_models_calls_is_marked_for_models_that_want_it() -> None:
    asked = Message.assistant("", tool_calls=(READ, LIST))
    asked = replace(asked, extra={"anthropic": {"blocks": []}})
    history = (Message.user("hi"), asked, Message.tool(READ, "1"), Message.tool(LIST, "2"))
    for model, wants in (
        ("gemini-3-pro-preview", True),
        ("gemini-flash-latest", True),
        ("models/gemini-3.1-pro", True),
        ("gemini-2.5-flash", False),
        ("gemma-3-27b-it", False),
    ):
        parts = contents(*history, model=ModelTraits(model))[1]["parts"]
        marks = [part.get("thoughtSignature") for part in parts]
        assert marks == [SKIP_SIGNATURE if wants else None, None], model


def test_text_that_was_changed_since_goes_back_without_its_signatures() -> None:
    part = {"text": "is it", "thoughtSignature": "c2ln"}
    message = Message.assistant("this is it now")
    kept = replace(message, extra={"gemini": {"signed": [{"at": 5, "part": part}]}})
    changed = replace(kept, content="that was it now")
    hi, on = Message.user("hi"), Message.user("go on")
    assert contents(hi, kept, on)[1]["parts"] == [{"text": "this "}, part, {"text": " now"}]
    assert contents(hi, changed, on)[1]["parts"] == [{"text": "that was it now"}]


@given(st.lists(st.tuples(st.text(max_size=9), st.booleans()), min_size=1, max_size=6))
def test_signatures_go_back_with_their_parts_whatever_is_printed(
    told: list[tuple[str, bool]],
) -> None:
    parts: list[JsonObject] = [{"text": "<think>Hm.</think>\n```py\n1\n```\n<tool_call>{}"}]
    parts += [{"text": text} | ({"thoughtSignature": "c2ln"} if s else {}) for text, s in told]
    adapter = GeminiAdapter()
    answer, decoder = Answer(adapter, Session(), ignore_events), adapter.decoder()
    for part in parts:
        answer.take(decoder.feed("", {"candidates": [{"content": {"parts": [part]}}]}))
    answer.take(decoder.feed("", {"candidates": [{"finishReason": "STOP"}]}))
    message = answer.complete(Stats()).message
    back = contents(Message.user("hi"), message)[1]["parts"]
    assert [p for p in back if "thoughtSignature" in p] == [
        p for p in parts if "thoughtSignature" in p
    ]
    assert "".join(p["text"] for p in back) == "".join(p["text"] for p in parts)
