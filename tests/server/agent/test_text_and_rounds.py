"""The joined text of an answer, and the store of hidden rounds, for any input."""

from hypothesis import given
from hypothesis import strategies as st

from shepherd.config.section import ShowToolCalls
from shepherd.events import CallbackEvent, Event, Text, Thinking, ignore_events
from shepherd.messages import Message, ToolCall
from shepherd.server.agent.rounds import HiddenRounds
from shepherd.server.agent.text import AnswerText
from shepherd.tools.tool import ToolResult
from tests.flat_events import flat

TEXT = st.text(max_size=12)
ROUND = st.tuples(st.lists(TEXT, max_size=4), st.lists(TEXT, max_size=4), TEXT, st.booleans())


@given(st.lists(ROUND, max_size=5), st.sampled_from(ShowToolCalls))
def test_streamed_pieces_join_to_the_whole_text(
    rounds: list[tuple[list[str], list[str], str, bool]], show: ShowToolCalls
) -> None:
    sent = {CallbackEvent.CONTENT: "", CallbackEvent.THINKING: ""}

    def callback(event: Event) -> bool:
        kind, content, _, _ = flat(event)
        sent[kind] += content
        return True

    text = AnswerText(callback, show)
    for content, reasoning, argument, ok in rounds:
        for piece in reasoning:
            text.listen(Thinking(piece))
        for piece in content:
            text.listen(Text(piece))
        text.end_generation(Message.assistant("".join(content), "".join(reasoning)))
        call = ToolCall("1", "read_file", {"path": argument})
        text.begin_call(call)
        text.end_call(call, ToolResult(argument, ok=ok))
    assert sent[CallbackEvent.CONTENT] == text.content.complete
    assert sent[CallbackEvent.THINKING] == text.reasoning.complete


@given(st.permutations(range(4)))
def test_each_of_the_calls_at_once_has_a_whole_line(order: list[int]) -> None:
    text = AnswerText(ignore_events, ShowToolCalls.CONTENT)
    calls = [ToolCall("1", "look", {"at": number}) for number in range(4)]
    for call in calls:
        text.begin_call(call)
    for number in order:
        text.end_call(calls[number], ToolResult("found"))
    lines = [f'> **look** `{{"at": {number}}}` → 1 line' for number in range(4)]
    assert sorted(text.content.complete.split("\n\n")) == lines


MESSAGES = st.lists(st.builds(Message.user, TEXT) | st.builds(Message.assistant, TEXT), max_size=6)


@given(MESSAGES, MESSAGES, TEXT, TEXT)
def test_rounds_come_back_only_after_the_same_history(
    history: list[Message], later: list[Message], answer: str, other: str
) -> None:
    rounds, final = HiddenRounds(), Message.assistant(answer)
    hidden = [Message.assistant("hidden"), Message.assistant(answer)]
    assert rounds.splice("me", [*history, final]).messages == [*history, final]
    rounds.keep("me", history, final, hidden)
    assert rounds.splice("me", [*history, final, *later]).messages == [*history, *hidden, *later]
    changed = [Message.user(f"{other}!"), *history, final]
    assert rounds.splice("me", changed).messages == changed
    assert rounds.splice("you", [*history, final]).messages == [*history, final]


@given(st.lists(st.tuples(TEXT, st.integers(0, 3000)), max_size=20))
def test_the_store_stays_below_its_limit(answers: list[tuple[str, int]]) -> None:
    rounds = HiddenRounds(max_bytes=5000)
    for text, size in answers:
        history, answer = [Message.user(text)], Message.assistant("a")
        rounds.keep("me", history, answer, [Message.assistant("x" * size), answer])
        kept = rounds.splice("me", [*history, answer]).messages
        assert len(kept) == 3 if size + 2001 <= 5000 else 2
        total = sum(
            len(rounds.splice("me", [Message.user(each), answer]).messages) > 2
            for each in {"".join(each.split()) for each, _ in answers}
        )
        assert total * 2000 <= 5000
