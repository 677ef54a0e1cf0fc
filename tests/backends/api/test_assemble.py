"""From deltas to events and the message."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api import stream
from shepherd.backends.api.adapter import Adapter
from shepherd.backends.api.answer import Answer
from shepherd.backends.base import Generation
from shepherd.events import CallbackEvent, FinishReason, Stats
from shepherd.messages import JsonObject, Message, ToolCall
from shepherd.sampling import Sampling, TokenLogprob
from shepherd.session import Session
from tests.backends.api.plain_adapter import PlainAdapter, SilentAdapter
from tests.backends.api.support import LIST, WRITE, Events, asking

PRINTED = '<tool_call>{"name": "list_directory", "arguments": {"path": "src"}}</tool_call>'
CODE = "See:\n```python\nprint(1)\n```\ndone"
ENDED = stream.Stop(FinishReason.STOP)
ALPHABET = 'a"\\ü🐑\ud83d\udc11'
"""Among them the halves of a letter."""


def answered(
    deltas: Sequence[stream.Delta],
    session: Session | None = None,
    adapter: Adapter | None = None,
    events: Events | None = None,
    broken: str = "",
) -> Generation:
    answer = Answer(adapter or PlainAdapter(), session or asking(LIST, WRITE), events or Events())
    for delta in deltas:
        answer.take([delta])
    return answer.complete(Stats(), broken)


def call(arguments: str, id: str = "c1", name: str = "list_directory", key: int = 0) -> stream.Call:
    return stream.Call(key, id, name, arguments)


def test_code_and_printed_thoughts_are_told_apart() -> None:
    events = Events()
    generation = answered([stream.Text("<think>hm</think>" + CODE), ENDED], events=events)
    assert events.of(CallbackEvent.THINKING) == ["hm"]
    assert "".join(events.of(CallbackEvent.CODEBLOCK)).startswith("```python\nprint(1)")
    assert generation.message == Message.assistant(CODE, "hm")


def test_a_printed_call_is_a_call_where_the_adapter_prints_calls() -> None:
    generation = answered([stream.Text(f"Look. {PRINTED}"), ENDED])
    assert [c.arguments for c in generation.message.tool_calls] == [{"path": "src"}]
    assert generation.finish_reason is FinishReason.TOOL_CALLS
    for session, adapter in ((asking(), PlainAdapter()), (asking(LIST), SilentAdapter())):
        generation = answered([stream.Text(PRINTED), ENDED], session, adapter)
        assert generation.message == Message.assistant(PRINTED)
        assert generation.finish_reason is FinishReason.STOP


@given(st.text(alphabet="a<think>/`\n {}[\"'|", max_size=60), st.data())
def test_nothing_is_lost_and_nothing_specs_in_a_silent_adapters_text(
    text: str, data: st.DataObject
) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    whole, parts = Events(), Events()
    one = answered([stream.Text(text), ENDED], adapter=SilentAdapter(), events=whole)
    two = answered([*map(stream.Text, pieces), ENDED], adapter=SilentAdapter(), events=parts)
    assert one.message == two.message == Message.assistant(text)
    assert whole.joined() == parts.joined()


def test_pieces_of_parallel_calls() -> None:
    deltas = [
        call("", "a"),
        stream.Call(1, "b", "write_file", extra={"sig": "s"}),
        stream.Call(0, "", "", '{"pa'),
        stream.Call(1, arguments='{"path": "x", "content": "y"}'),
        stream.Call(0, arguments='th": "ü"}'),
        stream.Stop(FinishReason.TOOL_CALLS),
    ]
    events = Events()
    generation = answered(deltas, events=events)
    assert generation.message.tool_calls == (
        ToolCall("a", "list_directory", {"path": "ü"}),
        ToolCall("b", "write_file", {"path": "x", "content": "y"}, {"plain": {"sig": "s"}}),
    )
    assert [e[0] for e in events.all] == [
        CallbackEvent.STATS,
        CallbackEvent.STOP,
        CallbackEvent.TOOL_CALL,
        CallbackEvent.TOOL_CALL,
    ]
    assert events.of(CallbackEvent.STOP) == ["tool_calls"]


def test_ids_are_made_where_they_are_missing_or_taken() -> None:
    old = Message.assistant("", "", (ToolCall("old", "list_directory", {}),))
    session = Session(messages=[Message.user("hi"), old], tools=[LIST])
    given_ids = ["", "x", "x", "old"]
    deltas = [call('{"path": "x"}', given, key=key) for key, given in enumerate(given_ids)]
    ids = [c.id for c in answered([*deltas, ENDED], session).message.tool_calls]
    assert ids[1] == "x"
    assert len({*ids, "old"}) == 5
    assert all(made.startswith("call_") for made in (ids[0], ids[2], ids[3]))


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"path": "a"}', {"path": "a"}),
        ("{'path': 'a',}", {"path": "a"}),
        ('{"path": "a"', {"path": "a"}),
        ('"{\\"path\\": \\"a\\"}"', {"path": "a"}),
        ("", {}),
        ("null", {}),
        ('{"path": 1}', {"path": 1}),
    ],
)
def test_arguments_are_read_leniently(written: str, arguments: dict[str, object]) -> None:
    generation = answered([call(written), ENDED])
    assert [c.arguments for c in generation.message.tool_calls] == [arguments]
    assert generation.problems == ()


@pytest.mark.parametrize("written", ['{"path": src}', "{path", "[1]", "7", '"x"', "{'path': 1}"])
def test_a_call_that_cannot_be_read_is_text_and_a_problem(written: str) -> None:
    generation = answered([call(written), stream.Stop(FinishReason.TOOL_CALLS)])
    assert generation.message.tool_calls == ()
    assert written in generation.message.content
    assert "list_directory" in generation.problems[0]
    assert generation.finish_reason is FinishReason.STOP


def test_a_call_nobody_offered_is_text() -> None:
    generation = answered([call('{"path": "a"}'), ENDED], asking())
    assert generation.message.tool_calls == ()
    assert '{"path": "a"}' in generation.message.content
    assert generation.problems == ()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(ALPHABET, max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(ALPHABET), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.text(ALPHABET, max_size=3), values, max_size=3), st.booleans())
def test_arguments_that_come_as_an_object_are_those_of_its_json(
    given: JsonObject, cut: object
) -> None:
    stop = stream.Stop(FinishReason.LENGTH) if cut else ENDED
    whole, text = Events(), Events()
    one = answered([stream.Call(0, "c1", "list_directory", given), stop], events=whole)
    two = answered([call(json.dumps(given, ensure_ascii=False)), stop], events=text)
    assert _with_values(whole) == _with_values(text)
    assert one.message == two.message


def _with_values(events: Events) -> list[tuple[object, ...]]:
    """The events, calls with their arguments in place of these as JSON."""
    return [
        (kind, json.loads(content) if kind is CallbackEvent.TOOL_CALL else content, *rest)
        for kind, content, *rest in events.joined()
    ]


def test_a_native_call_goes_before_a_printed_one() -> None:
    same = answered([stream.Text(f"Look. {PRINTED}"), call('{"path": "src"}'), ENDED])
    assert [c.id for c in same.message.tool_calls] == ["c1"]
    assert same.message.content == "Look. "
    other = answered([stream.Text(PRINTED), call('{"path": "docs"}'), ENDED])
    assert [c.arguments for c in other.message.tool_calls] == [{"path": "docs"}]
    assert other.message.content == PRINTED


@pytest.mark.parametrize(
    ("deltas", "broken", "reason"),
    [
        ([stream.Stop(FinishReason.LENGTH)], "", FinishReason.LENGTH),
        ([], "gone", FinishReason.ERROR),
    ],
)
def test_a_call_that_was_cut_is_never_run(
    deltas: list[stream.Delta], broken: str, reason: FinishReason
) -> None:
    whole = '{"path": "a", "content": "b"}'
    for end in range(len(whole)):
        events = Events()
        started = call(whole[:end], name="write_file", key=1)
        generation = answered(
            [call('{"path": "x"}'), started, *deltas], events=events, broken=broken
        )
        assert [c.name for c in generation.message.tool_calls] == ["list_directory"]
        assert generation.finish_reason is reason
        assert whole[:end] in generation.message.content
        assert "write_file was not complete" in events.of(CallbackEvent.SYSTEM)[0]


def test_what_the_api_wants_back_is_kept() -> None:
    deltas = [stream.Extra({"a": [1], "b": 1}), stream.Extra({"a": [2], "b": 2}), ENDED]
    assert answered(deltas).message.extra == {"plain": {"a": [1, 2], "b": 2}}


def test_thoughts_and_notes() -> None:
    events = Events()
    deltas = [
        stream.Thinking("so"),
        stream.Text("ok"),
        stream.Stop(FinishReason.STOP, "It refused."),
    ]
    generation = answered(deltas, events=events)
    assert (generation.message.reasoning, generation.message.content) == ("so", "ok")
    assert events.of(CallbackEvent.SYSTEM) == ["It refused."]


@pytest.mark.parametrize(("named", "known"), [("END", "END"), ("eos", ""), ("", "")])
def test_only_a_stop_string_of_the_request_is_one(named: str, known: str) -> None:
    session = asking()
    session.sampling = Sampling(stop=("x", "END"))
    deltas = [stream.Text("ok"), stream.Stop(FinishReason.STOP, stop_string=named)]
    assert answered(deltas, session).stop_string == known
    assert answered(deltas).stop_string == ""


def test_usage_adds_up() -> None:
    answer = Answer(PlainAdapter(), asking(), Events())
    answer.take([stream.Usage(10, 5, 1), stream.Usage(completion_tokens=9)])
    assert answer.usage == stream.Usage(10, 5, 9)
    assert not answer.started


def test_after_no_the_callback_is_left_alone() -> None:
    events = Events(stop_at=0)
    answer = Answer(PlainAdapter(), asking(LIST), events)
    answer.take([stream.Text("one")])
    answer.take([stream.Text(" two"), call('{"path": "x"}')])
    generation = answer.complete(Stats())
    assert len(events.all) == 1
    assert generation.finish_reason is FinishReason.CANCELLED
    assert generation.message.content == "one two"


def test_log_probabilities_of_the_content() -> None:
    tokens = [TokenLogprob(t.encode(), -0.5) for t in ("<think>", "a", "</think>", "b", "c")]
    found: list[TokenLogprob] = []
    answer = Answer(PlainAdapter(), asking(), Events(), found)
    answer.take([stream.Text(t.text, (t,)) for t in tokens])
    generation = answer.complete(Stats())
    assert generation.logprobs == tuple(tokens[3:])
    assert generation.message.content == "bc"
