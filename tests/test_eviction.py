"""The eviction planner: whole groups, oldest first, never what must stay."""

from hypothesis import given
from hypothesis import strategies as st

from shepherd.messages import Message, Role, ToolCall
from shepherd.turn.fitting import message_groups, plan_eviction


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Valid conversations: turns of rounds of calls with their results, some unanswered.

    Before a round there may be a call that was not understood, with its hint.
    """
    messages: list[Message] = []
    for turn in range(draw(st.integers(0, 6))):
        messages.append(Message.user(f"question {turn}"))
        for round_ in range(draw(st.integers(0, 3))):
            if draw(st.booleans()):
                messages += [Message.assistant("<tool_call>{"), Message.hint("not understood")]
            calls = tuple(
                ToolCall(f"c{turn}.{round_}.{i}", "read", {})
                for i in range(draw(st.integers(1, 3)))
            )
            messages.append(Message.assistant("", tool_calls=calls))
            messages += [Message.tool(c, "text") for c in calls]
        if draw(st.booleans()):
            messages.append(Message.assistant("answer"))
    return messages


@st.composite
def counted(draw: st.DrawFn) -> tuple[list[Message], list[int]]:
    messages = draw(histories())
    size = len(messages)
    return messages, draw(st.lists(st.integers(1, 100), min_size=size, max_size=size))


def without(messages: list[Message], plan: list[range]) -> list[Message]:
    evicted = {i for r in plan for i in r}
    return [m for i, m in enumerate(messages) if i not in evicted]


@given(counted(), st.integers(1, 3000))
def test_what_stays_is_a_valid_conversation(
    history: tuple[list[Message], list[int]], over: int
) -> None:
    messages, counts = history
    rest = without(messages, plan_eviction(messages, counts, over))
    calls = [c.id for m in rest for c in m.tool_calls]
    results = [m.tool_call_id for m in rest if m.role is Role.TOOL]
    assert calls == results
    assert not rest or (rest[0].role is Role.USER and not rest[0].is_hint)
    hints = [i for i, m in enumerate(rest) if m.is_hint]
    assert all(rest[i - 1].content == "<tool_call>{" for i in hints)


@given(counted(), st.integers(1, 3000))
def test_the_last_user_message_and_the_newest_group_stay(
    history: tuple[list[Message], list[int]], over: int
) -> None:
    messages, counts = history
    rest = without(messages, plan_eviction(messages, counts, over))
    users = [m for m in messages if m.role is Role.USER and not m.is_hint]
    if users:
        assert users[-1] in rest
        assert messages[-1] in rest


@given(counted(), st.integers(1, 3000))
def test_it_frees_enough_and_no_group_more(
    history: tuple[list[Message], list[int]], over: int
) -> None:
    messages, counts = history
    groups = message_groups(messages)
    sizes = [sum(counts[i] for i in g) for g in groups]
    freed = sum(counts[i] for r in plan_eviction(messages, counts, over) for i in r)
    assert freed == sum(sizes) or freed >= over
    needed = 0
    for size in sizes:
        if needed >= over:
            break
        needed += size
    assert freed == needed


@given(counted(), st.integers(1, 3000), st.integers(0, 1000))
def test_slack_takes_whole_groups_and_never_more_than_half_of_what_else_might_stay(
    history: tuple[list[Message], list[int]], over: int, slack: int
) -> None:
    messages, counts = history
    sizes = [sum(counts[i] for i in g) for g in message_groups(messages)]
    plans = [plan_eviction(messages, counts, over, extra) for extra in (0, slack)]
    needed, freed = (sum(counts[i] for r in plan for i in r) for plan in plans)
    half = over + (sum(sizes) - over) // 2
    assert needed <= freed <= max(needed, half)
    ends = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    following = ends[ends.index(freed) + 1 :]
    assert freed >= over + slack or not following or following[0] > half
    assert freed == needed or ends[ends.index(freed) - 1] < over + slack


def test_without_need_no_slack_is_made() -> None:
    messages = [Message.user("go"), Message.assistant("yes")] * 9
    assert plan_eviction(messages, [10] * 18, 0, 100) == []
    assert plan_eviction(messages, [10] * 18, 1, 50) == [range(6)]


@given(histories())
def test_groups_are_disjoint_and_in_order(messages: list[Message]) -> None:
    flat = [i for g in message_groups(messages) for i in g]
    assert flat == sorted(set(flat))


def test_nothing_to_evict_gives_an_empty_plan() -> None:
    assert plan_eviction([], [], 10) == []
    assert plan_eviction([Message.user("only")], [5], 10) == []


def test_a_long_tool_turn_gives_up_its_oldest_rounds() -> None:
    calls = [ToolCall(str(i), "read", {}) for i in range(3)]
    messages = [Message.user("go")]
    for call in calls:
        messages += [Message.assistant("", tool_calls=(call,)), Message.tool(call, "text")]
    assert plan_eviction(messages, [1] * 7, 3) == [range(1, 5)]


@st.composite
def labelled(draw: st.DrawFn) -> tuple[list[Message], list[list[int]]]:
    """A conversation, and which of its messages may go together, oldest first.

    The labels come from how it is made: earlier turns go whole, answered or not; of the last turn
    each answer with what came of it, but for the newest.
    """
    turns = draw(st.integers(1, 5))
    messages: list[Message] = []
    groups: list[list[int]] = []

    def add(*answer: Message) -> list[int]:
        start = len(messages)
        messages.extend(answer)
        return list(range(start, len(messages)))

    for turn in range(turns):
        question = add(Message.user(f"question {turn}"))
        answers: list[list[int]] = []
        for kind in draw(st.lists(st.sampled_from(["calls", "hint", "answer"]), max_size=4)):
            call = ToolCall(f"c{len(messages)}", "read", {})
            other = ToolCall(f"d{len(messages)}", "read", {})
            answer = [Message.assistant("", tool_calls=(call, other))]
            answer += [Message.tool(call, "text"), Message.tool(other, "text")]
            if kind == "hint":
                answer = [Message.assistant("<tool_call>{"), Message.hint("what?")]
            elif kind == "answer":
                answer = [Message.assistant("answer")]
            answers.append(add(*answer))
        if turn < turns - 1:
            groups.append(sum(answers, question))
        else:
            groups += answers[:-1]
    return messages, groups


@given(labelled(), st.integers(1, 60), st.data())
def test_what_goes_is_known_from_how_the_conversation_was_made(
    made: tuple[list[Message], list[list[int]]], over: int, data: st.DataObject
) -> None:
    messages, groups = made
    size = len(messages)
    counts = data.draw(st.lists(st.integers(1, 9), min_size=size, max_size=size))
    evicted: list[int] = []
    for group in groups:
        if sum(counts[i] for i in evicted) >= over:
            break
        evicted += group
    plan = plan_eviction(messages, counts, over)
    assert [i for group in plan for i in group] == evicted


def test_questions_that_nobody_answered_go_one_by_one() -> None:
    messages = [Message.user(str(number)) for number in range(5)]
    assert plan_eviction(messages, [10] * 5, 1) == [range(1)]
    assert plan_eviction(messages, [10] * 5, 25) == [range(3)]
    assert plan_eviction(messages, [10] * 5, 999) == [range(4)]
