"""What goes when something must, so that the next turns begin as those before."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import ContextFullError
from shepherd.events import Event, FinishReason, Notice, Topic
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.turn import run_turn
from shepherd.turn.fitting import make_room, message_counts, room_for_answer
from tests.turn.guessing import Reader

WINDOW = 1000
BACKEND = ScriptedBackend(parse_script(f"context: {WINDOW}\ntext: yes"))


def conversation(sizes: list[int], last: int = 1) -> Session:
    """A conversation of turns that are so many words long, and a question."""
    messages: list[Message] = []
    for size in sizes:
        messages += [Message.user("word " * size), Message.assistant("yes")]
    return Session(messages=[*messages, Message.user("word " * last)])


async def used(session: Session) -> int:
    return sum(await message_counts(session, BACKEND))


@given(st.lists(st.integers(1, 60), min_size=30, max_size=60), st.integers(1, 300))
async def test_what_the_backend_asks_for_goes_and_room_for_turns_with_it(
    sizes: list[int], over: int
) -> None:
    session = conversation(sizes)
    counts = await message_counts(session, BACKEND)
    before, freeable, group = sum(counts), sum(counts[:-1]), max(counts) + counts[1]
    evicted = await make_room(session, BACKEND, ContextFullError("full", over))
    freed = before - await used(session)
    share = min(WINDOW, before) // 8
    half = over + share + max(0, freeable - over - share) // 2
    assert len(evicted) % 2 == 0
    assert freed >= min(freeable, over + share)
    assert freed >= over + 3 * share or freed + group > half
    assert freed < over + 3 * share + group + 8
    assert session.messages[-1].content == "word "


async def test_a_conversation_of_one_large_message_keeps_what_it_can() -> None:
    session = conversation([20] * 10, last=600)
    before = await used(session)
    evicted = await room_for_answer(session, BACKEND, WINDOW - WINDOW // 8 + 20)
    freeable = before - await used(conversation([], last=600))
    assert 20 <= before - await used(session) <= 20 + (freeable - 20) // 2
    assert 0 < len(evicted) < 12


async def test_one_eviction_lasts_for_several_turns() -> None:
    session, evictions = Session(), list[int]()

    for number in range(100):

        def listen(event: Event, n: int = number) -> bool:
            if isinstance(event, Notice) and event.topic == Topic.EVICTION:
                evictions.append(n)
            return True

        outcome = await run_turn(session, "word " * 20, BACKEND, Reader(0), listen)
        assert outcome.finish_reason is FinishReason.STOP
    assert evictions
    gaps = [b - a for a, b in pairwise(evictions)]
    assert min(gaps) >= 4
