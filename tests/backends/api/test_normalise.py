"""Whatever a history is, what an API gets is valid."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.api.history import (
    GO_ON,
    LEFT_OUT,
    NO_OUTPUT,
    NO_RESULT,
    NO_TEXT,
    Rules,
    normalise,
    turns,
)
from shepherd.messages import Message, Role, ToolCall
from tests.pictures import picture

texts = st.sampled_from(["", "  \n", "hi", "Köln", "\ud83d", "a\n\nb"]) | st.text(max_size=5)
ids = st.sampled_from(["", "a", "b", "call:1", "call 1", "x" * 50, "é"])
names = st.sampled_from(["read_file", "", "functions.read file", "y" * 80])
arguments = st.dictionaries(texts, texts | st.floats() | st.lists(texts, max_size=2), max_size=2)
calls = st.builds(ToolCall, ids, names, arguments)
messages = st.builds(
    Message,
    st.sampled_from(Role),
    texts,
    reasoning=texts,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    tool_call_id=ids,
    name=st.sampled_from(["", "read_file", "shepherd"]),
    images=st.lists(st.sampled_from([picture("a.png"), picture("b.png", 5)]), max_size=2).map(
        tuple
    ),
)
histories = st.lists(messages, max_size=10)
rules = st.builds(
    Rules,
    user_first=st.booleans(),
    user_last=st.booleans(),
    merge=st.booleans(),
) | st.builds(
    Rules, merge=st.booleans(), call_id=st.just("[A-Za-z0-9]{9}"), call_id_length=st.just(9)
)

CALL = ToolCall("a", "read_file", {"path": "x"})
HI = Message.user("hi")
ASKS = Message.assistant("", tool_calls=(CALL,))
GIVES = Message.tool(CALL, "text")


def told(*history: Message, rules: Rules | None = None) -> list[Message]:
    return list(normalise("", history, rules).messages)


@given(texts, histories, rules)
def test_what_comes_out_is_valid(system: str, history: list[Message], rules: Rules) -> None:
    conversation = normalise(system, history, rules)
    conversation.system.encode()
    said = conversation.messages
    assert said
    open_ids: list[str] = []
    seen: set[str] = set()
    for message in said:
        (message.content + message.reasoning).encode()
        assert message.role is not Role.SYSTEM
        calls = message.role is Role.ASSISTANT and message.tool_calls
        assert message.content.strip() or calls or message.images
        assert message.role is Role.USER or not message.images
        if message.role is Role.TOOL:
            assert message.tool_call_id == open_ids.pop(0)
            continue
        assert not open_ids
        open_ids = [call.id for call in message.tool_calls]
        for call in message.tool_calls:
            assert message.role is Role.ASSISTANT
            assert re.fullmatch(rules.call_id, call.id)
            assert re.fullmatch(rules.tool_name, call.name)
            assert call.id not in seen
            seen.add(call.id)
            json.dumps(call.arguments, allow_nan=False, ensure_ascii=False).encode()
    assert not open_ids
    check_options(said, rules)


@given(histories, rules)
def test_no_image_is_lost(history: list[Message], rules: Rules) -> None:
    conversation = normalise("", history, rules)
    head = list(takewhile(lambda m: m.role is Role.SYSTEM, history))
    shown = [m for m in history[len(head) :] if m.role is not Role.ASSISTANT]
    found = Counter(image for m in conversation.messages for image in m.images)
    assert found == Counter(image for m in shown for image in m.images)
    for image in (image for m in head for image in m.images):
        assert image.label in conversation.system


def test_images_of_results_follow_the_results() -> None:
    first, second = picture("a.png"), picture("b.png")
    other = replace(CALL, id="b")
    calls = Message.assistant("", tool_calls=(CALL, other))
    results = [
        replace(Message.tool(c, ""), images=(i,)) for c, i in ((CALL, first), (other, second))
    ]
    assert told(HI, calls, *results, Message.user("so?", (first,)), rules=Rules(merge=True)) == [
        HI,
        calls,
        Message.tool(CALL, NO_OUTPUT),
        Message.tool(other, NO_OUTPUT),
        Message.user("From read_file.\n\nFrom read_file.\n\nso?", (first, second, first)),
    ]


def check_options(said: Sequence[Message], rules: Rules) -> None:
    if rules.user_first:
        assert said[0].role is Role.USER
    if rules.user_last:
        assert said[-1].role is not Role.ASSISTANT
    if rules.merge:
        neighbours = pairwise(said)
        assert all(a.role is not b.role or a.role is Role.TOOL for a, b in neighbours)


@given(texts, histories, rules)
def test_doing_it_again_changes_nothing(system: str, history: list[Message], rules: Rules) -> None:
    once = normalise(system, history, rules)
    assert normalise(once.system, once.messages, rules) == once


@given(histories, rules)
def test_no_text_is_lost(history: list[Message], rules: Rules) -> None:
    conversation = normalise("", history, rules)
    kept = "\n".join([conversation.system, *(m.content for m in conversation.messages)])
    for message in history:
        if message.content.strip():
            assert message.content.encode("utf-8", "replace").decode() in kept
    calls = sum(len(m.tool_calls) for m in history if m.role is Role.ASSISTANT)
    assert sum(len(m.tool_calls) for m in conversation.messages) == calls


@given(texts, histories, histories, rules)
def test_what_is_appended_comes_behind(
    system: str, before: list[Message], after: list[Message], rules: Rules
) -> None:
    """All but the last group of the shorter conversation begins the longer one."""
    shorter = normalise(system, before, rules)
    longer = normalise(system, [*before, *after], rules)
    said = [m.role is Role.ASSISTANT for m in shorter.messages]
    last = max((i for i, speaks in enumerate(said) if speaks), default=0)
    assert longer.messages[:last] == shorter.messages[:last]
    if any(m.role is not Role.SYSTEM for m in before):
        assert longer.system == shorter.system


@given(histories, histories)
def test_nothing_before_a_question_changes(before: list[Message], after: list[Message]) -> None:
    shorter = normalise("", [*before, HI])
    longer = normalise("", [*before, HI, *after])
    assert longer.messages[: len(shorter.messages)] == shorter.messages


@given(histories, rules)
def test_turns_are_of_both_sides_and_have_it_all(history: list[Message], rules: Rules) -> None:
    said = normalise("", history, rules).messages
    sides = turns(said)
    assert [m for turn in sides for m in turn.messages] == list(said)
    assert all(a.role is not b.role for a, b in pairwise(sides))
    for turn in sides:
        if turn.role is Role.USER:
            results = [m.role is Role.TOOL for m in turn.messages]
            assert results == sorted(results, reverse=True)


def test_a_good_conversation_stays_as_it_is() -> None:
    hint = Message.hint("Try again.")
    history = [HI, Message.assistant("what?", "hm"), hint, ASKS, GIVES, Message.assistant("so")]
    rules = Rules(user_first=True, merge=True)
    assert told(*history) == told(*history, rules=rules) == history


def test_a_call_gets_the_result_that_it_lacks() -> None:
    other = ToolCall("b", "list", {})
    asks = Message.assistant("", tool_calls=(CALL, other))
    filled = Message.tool(CALL, NO_RESULT)
    given = Message.tool(other, "b's")
    assert told(HI, asks, given, HI) == [HI, asks, filled, given, HI]


def test_results_come_in_the_order_of_the_calls() -> None:
    other = ToolCall("b", "list", {})
    asks = Message.assistant("", tool_calls=(CALL, other))
    given = Message.tool(other, "b's")
    assert told(HI, asks, given, GIVES) == [HI, asks, GIVES, given]


@pytest.mark.parametrize(
    "history", [[HI, GIVES], [HI, ASKS, GIVES, GIVES], [HI, ASKS, HI, GIVES]], ids=str
)
def test_a_result_without_a_call_is_told_by_the_user(history: list[Message]) -> None:
    assert told(*history)[-1] == Message.user("Result of read_file:\ntext")


def test_equal_ids_become_different_ones() -> None:
    first, _, second, last = told(ASKS, GIVES, ASKS, GIVES)
    assert first.tool_calls[0].id == "a" != second.tool_calls[0].id == last.tool_call_id


def test_equal_ids_in_one_message_take_the_results_in_order() -> None:
    asks = Message.assistant("", tool_calls=(CALL, CALL))
    one, two = told(asks, GIVES, Message.tool(CALL, "second"))[1:]
    assert (one.content, two.content) == ("text", "second")


def test_what_is_empty_gets_a_text_or_goes() -> None:
    history = [Message.user(" "), ASKS, Message.tool(CALL, ""), Message.assistant("", "thought")]
    assert [m.content for m in told(*history)] == [NO_TEXT, "", NO_OUTPUT]


def test_system_messages_join_the_first_or_become_the_users() -> None:
    system = Message(Role.SYSTEM, "Be short.")
    conversation = normalise("You help.", [system, HI, system])
    assert conversation.system == "You help.\n\nBe short."
    assert conversation.messages == (HI, Message.user("Be short."))


def test_the_first_and_the_last_word_are_the_users() -> None:
    answer = Message.assistant("yes")
    rules = Rules(user_first=True, user_last=True)
    assert told(answer, rules=rules) == [Message.user(LEFT_OUT), answer, Message.user(GO_ON)]
    assert told() == [Message.user(LEFT_OUT)]


def test_neighbours_are_merged() -> None:
    said = [HI, Message.hint("again"), Message.assistant("a", "r"), Message.assistant("b", "s")]
    merged = [Message.user("hi\n\nagain"), Message.assistant("a\n\nb", "r\n\ns")]
    assert told(*said, rules=Rules(merge=True)) == merged
