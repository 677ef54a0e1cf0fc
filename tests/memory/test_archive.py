"""What leaves a session: all of it, in order, as words that can be searched."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.memory.memory import ConversationArchive
from shepherd.memory.store import RESULT_CHARACTERS, archived_text
from shepherd.messages import Message, Role, ToolCall
from shepherd.session import Session
from shepherd.turn.fitting import message_groups
from tests.examples import examples
from tests.memory.stores import HERE, opened

WORDS = st.text(alphabet=st.characters(categories=["Ll", "Lu", "Nd", "Lo"]), min_size=1, max_size=9)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)


def archived(messages: list[Message]) -> list[str]:
    """The texts that are kept of `messages`."""
    return [text for text in map(archived_text, messages) if text]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(25),
)
@given(
    st.lists(
        st.tuples(WORDS, WORDS, st.dictionaries(WORDS, VALUES, max_size=2)), min_size=2, max_size=5
    )
)
def test_what_left_and_what_stayed_is_the_whole_conversation(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[str, str, dict[str, object]]]
) -> None:
    async def check() -> None:
        path = tmp_path_factory.mktemp("memory") / "memory.db"
        async with opened(path) as memory:
            session = Session(id="s", archive=ConversationArchive(memory, "s", HERE))
            for number, (question, answer, arguments) in enumerate(turns):
                call = ToolCall(f"c{number}", "grep", arguments)
                session.add(Message.user(f"{question} question{number}"))
                session.add(Message.assistant("", "thoughts", (call,)))
                session.add(Message.tool(call, f"result{number} {answer}"))
                session.add(Message.assistant(answer))
            began, everything = session.times[0], list(session.messages)
            session.evict(message_groups(session.messages)[:-1])
            evicted = everything[: len(everything) - len(session.messages)]
            assert everything == evicted + session.messages
            assert (await memory.counts()).messages == len(evicted)
            for number in range(len(turns)):
                for word, role in (
                    (f"question{number}", Role.USER),
                    (f"result{number}", Role.TOOL),
                ):
                    matches = await memory.search(word, HERE.project, 50)
                    left = 4 * number < len(evicted)
                    assert [f.role for f in matches] == ([role] if left else [])
            oldest = (await memory.counts()).oldest
            assert began is not None
            assert evicted == [] or oldest == began.replace(microsecond=0)

    asyncio.run(check())


@given(st.dictionaries(WORDS, VALUES, max_size=4))
def test_every_word_of_a_call_is_kept_without_escapes(arguments: dict[str, object]) -> None:
    def words(value: object) -> list[str]:
        match value:
            case dict():
                items = cast(dict[str, object], value).items()
                return [w for key, inner in items for w in [key, *words(inner)]]
            case list():
                return [w for inner in cast(list[object], value) for w in words(inner)]
            case _:
                return [str(value)]

    (text,) = archived([Message.assistant("", "", (ToolCall("c", "do_it", arguments),))])
    assert text.startswith("do_it(")
    assert all(word in text for word in words(arguments))
    lines = ToolCall("c", "write_file", {"content": "one\ntwo"})
    assert "one\ntwo" in archived([Message.assistant("", "", (lines,))])[0]


def test_what_came_out_of_the_memory_does_not_go_into_it_again() -> None:
    search = ToolCall("1", "search_memory", {"query": "heron"})
    other = ToolCall("2", "grep", {"pattern": "stork"})
    messages = [
        Message.hint("write it again"),
        Message.assistant("I look.", "", (search, other)),
        Message.tool(search, "[2026-11-21 user] heron"),
        Message.tool(other, "stork: 1"),
        Message.assistant("", "only thoughts"),
    ]
    assert archived(messages) == ["I look.\ngrep(pattern=stork)", "stork: 1"]


def test_long_results_are_cut_and_say_so() -> None:
    call = ToolCall("1", "read_file", {})
    long = "x" * (RESULT_CHARACTERS + 77)
    question, result = archived([Message.user(long), Message.tool(call, long)])
    assert question == long
    assert result == f"{'x' * RESULT_CHARACTERS}\n[77 more characters were not kept]"


def test_what_no_file_can_hold_is_made_fit() -> None:
    assert archived([Message.user("a\0b \ud800 c")]) == ["ab ? c"]


async def test_only_what_has_words_and_was_said_is_kept(path: Path) -> None:
    async with opened(path) as memory:
        session = Session(archive=ConversationArchive(memory, "s", HERE))
        session.add(Message.assistant("", "only thoughts"))
        session.evict([range(1)])
        session.add(Message.user("too long"))
        assert session.pop_last() == Message.user("too long")
        assert (session.messages, session.times, session.ledger.counts) == ([], [], [])
        assert (await memory.counts()).messages == 0


def test_times_run_parallel_to_the_messages() -> None:
    session = Session(messages=[Message.user("old")])
    session.add(Message.user("new"))
    assert session.times[0] is None
    assert session.times[1] is not None
    assert (datetime.now(UTC) - session.times[1]).total_seconds() < 60
    session.evict([range(1)])
    assert len(session.times) == 1
    session.clear()
    assert session.times == []
