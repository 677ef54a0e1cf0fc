"""Events that go over the wire as updates come out as they went in."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shepherd.conversation.shared.updates import UpdateKind, from_event, to_event
from shepherd.events import (
    CodeBlock,
    Event,
    Failure,
    FinishReason,
    Notice,
    PlanStep,
    PlanUpdate,
    PrefillProgress,
    Stats,
    StepStatus,
    Stop,
    Text,
    Thinking,
    ToolResult,
    Topic,
    UserPrompt,
    event_from_json,
    event_to_json,
)
from shepherd.json_text import to_json
from shepherd.messages import ToolCall

text = st.text(st.characters(exclude_categories=["Cs"]))
name = st.text(st.characters(categories=["L", "N"]), min_size=1)
values = st.recursive(st.none() | st.booleans() | st.integers() | text, st.lists)
arguments = st.dictionaries(text, values)
topics = st.sampled_from([t for t in Topic if t not in (Topic.PREFILL, Topic.PLAN)])
steps = st.lists(st.builds(PlanStep, text, st.sampled_from(StepStatus))).map(tuple)
counts = st.integers(0, 2**40)
seconds = st.floats(0, 1e6)
stats = st.builds(
    Stats,
    *[counts] * 3,
    *[seconds] * 2,
    *[counts] * 5,
    st.none() | seconds,
    provider=st.just("") | name,
    id=st.just("") | name,
)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Text, text),
    st.builds(Thinking, text),
    st.builds(CodeBlock, text, text),
    st.builds(ToolCall, name, name, arguments),
    st.builds(ToolResult, name, name, text),
    st.builds(Notice, text, topics, st.just("") | name),
    st.builds(PrefillProgress, counts, counts, counts),
    st.builds(PrefillProgress, counts, counts, counts, st.integers(1, 999), seconds),
    st.builds(PlanUpdate, steps, id=st.just("") | name),
    st.builds(PlanUpdate, proposal=name, id=st.just("") | name),
    st.builds(Failure, text, name),
    st.builds(Stop, st.sampled_from(FinishReason)),
    stats,
)


@given(events)
def test_every_event_survives_the_wire(event: Event) -> None:
    update = from_event(event)
    assert update is not None
    kind, data = update
    assert to_event(kind, json.loads(to_json(data))) == event


@given(events | st.builds(UserPrompt, text))
@example(Stats(0, 2**40, 0, 1e-300, 0.0))
@example(Stats(2**40, 0, 0, 1e-300, 0.0))
def test_every_event_survives_its_encoding(event: Event) -> None:
    assert event_from_json(json.loads(to_json(event_to_json(event)))) == event


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"steps": [1]}', '{"steps": 3}'])
def test_other_content_is_no_plan(content: str) -> None:
    assert to_event(UpdateKind.NOTICE, {"topic": "plan", "text": content}) == PlanUpdate()


def test_the_prompt_stays_here() -> None:
    assert from_event(UserPrompt("hi")) is None


@given(counts, st.integers(1, 999), st.integers(0, 10**6))
def test_a_place_is_read_from_its_sentence(total: int, place: int, seconds: int) -> None:
    progress = PrefillProgress(0, total, place=place, seconds=seconds)
    assert PrefillProgress.waiting(progress.waits, total) == progress
    assert PrefillProgress.waiting(f"{progress.waits}!", total) is None
    assert PrefillProgress.waiting("keep-alive", total) is None
