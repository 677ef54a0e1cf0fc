"""Events that go over the wire as updates come out as they went in."""

import json

from hypothesis import given
from hypothesis import strategies as st

from shepherd.conversation.shared.protocol import Event, from_event, to_event
from shepherd.events import CallbackEvent, FinishReason, Topic
from shepherd.json_text import to_json

text = st.text(st.characters(exclude_categories=["Cs"]))
name = st.text(st.characters(categories=["L", "N"]), min_size=1)
values = st.recursive(st.none() | st.booleans() | st.integers() | text, st.lists)
arguments = st.dictionaries(text, values).map(lambda data: json.dumps(data, ensure_ascii=False))
topics = st.sampled_from([topic for topic in Topic if topic is not Topic.PREFILL])

events: st.SearchStrategy[Event] = st.one_of(
    st.tuples(
        st.sampled_from([CallbackEvent.CONTENT, CallbackEvent.THINKING]),
        text,
        st.just(""),
        st.just(""),
    ),
    st.tuples(st.just(CallbackEvent.CODEBLOCK), text, text, st.just("")),
    st.tuples(st.just(CallbackEvent.TOOL_CALL), arguments, name, name),
    st.tuples(st.just(CallbackEvent.TOOL_RESULT), text, name, name),
    st.tuples(st.just(CallbackEvent.SYSTEM), text, topics, st.just("") | name),
    st.tuples(st.just(CallbackEvent.ERROR), text, name, st.just("")),
    st.tuples(st.just(CallbackEvent.STOP), st.sampled_from(FinishReason), st.just(""), st.just("")),
    st.tuples(st.just(CallbackEvent.STATS), arguments, st.just("") | name, st.just("") | name),
)


@given(events)
def test_every_event_survives_the_wire(event: Event) -> None:
    update = from_event(*event)
    assert update is not None
    kind, data = update
    back = to_event(kind, json.loads(to_json(data)))
    assert back is not None
    if event[0] in (CallbackEvent.TOOL_CALL, CallbackEvent.STATS):
        assert json.loads(back[1]) == json.loads(event[1])
        assert (back[0], *back[2:]) == (event[0], *event[2:])
    else:
        assert back == event


def test_the_prompt_and_its_progress_stay_here() -> None:
    assert from_event(CallbackEvent.USER_PROMPT, "hi") is None
    assert from_event(CallbackEvent.SYSTEM, "1/2", Topic.PREFILL) is None
