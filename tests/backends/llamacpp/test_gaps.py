"""Evicted messages recognised, and what is behind them moved instead of decoded."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.cache.prefixes import MIN_PREFIX, Query, find_gap, packed
from shepherd.backends.llamacpp.cache.sequence import HostCache
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.messages import Message
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.rooms import TOLERANCE, Room, difference, make_room
from tests.backends.llamacpp.support import PUP, Recorder, conversation, loaded

START, END = 3, 4
CONTROLS = frozenset({START, END})
WORDS = st.lists(st.integers(20, 60), min_size=12, max_size=30)


def message(words: list[int]) -> list[int]:
    return [START, *words, END]


@given(
    messages=st.lists(WORDS, min_size=8, max_size=10),
    gone=st.integers(1, 3),
    new=WORDS,
    cut=st.integers(0, 3),
)
def test_evicted_messages_leave_a_gap_that_is_found(
    messages: list[list[int]], gone: int, new: list[int], cut: int
) -> None:
    system, *rest = [message([20 + i, *words]) for i, words in enumerate(messages)]
    held = [*system, *(t for m in rest for t in m)]
    held = held[: len(held) - cut]
    prompt = [*system, *(t for m in rest[gone:] for t in m), *message(new)]
    gap = find_gap(held, prompt, CONTROLS)
    assert gap is not None
    closed = [*held[: gap.start], *held[gap.end :]]
    assert closed[: gap.usable] == prompt[: gap.usable]
    assert gap.usable >= len(held) - sum(map(len, rest[:gone])) - 1
    assert gap.start >= MIN_PREFIX


@given(messages=st.lists(WORDS, min_size=3, max_size=6), at=st.integers(0, 11))
def test_an_edited_message_is_no_gap(messages: list[list[int]], at: int) -> None:
    """Words that were taken out of a message must not be heard any more."""
    system, *rest = [message([20 + i, *words]) for i, words in enumerate(messages)]
    extra = [70, 71, 72]
    edited = [*rest[0][: at + 1], *extra, *rest[0][at + 1 :]]
    after = [t for m in rest[1:] for t in m]
    held = [*system, *edited, *after]
    assert find_gap(held, [*system, *rest[0], *after, START, 20], CONTROLS) is None


def test_a_system_prompt_that_is_gone_is_no_gap() -> None:
    rest = [*message(list(range(20, 60))), *message(list(range(60, 20, -1)))]
    assert find_gap([*message([21] * 20), *rest], [*rest, START, 20], CONTROLS) is None
    assert find_gap([1, *message([21] * 20), *rest], [1, *rest, START, 20], CONTROLS) is None


@dataclass
class Rooms:
    """One room that moves tokens and one that is cleared before each prompt."""

    warm: Room
    cold: Room


def _rooms(path: Path, sequences: int = 2) -> Rooms:
    warm, cold = make_room(path, sequences), make_room(path, sequences)
    controls = warm.model.vocab.controls
    host = HostCache(4 * 1024 * 1024)
    window = warm.model.window
    warm.pool = SequencePool(warm.context, window, controls, host, shifts=True)
    return Rooms(warm, cold)


@pytest.fixture(params=["single", "llama", "moe"])
def rooms(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rooms]:
    if request.param == "single":
        path = tiny.write_llama(tmp_path / "single.gguf", layers=1)
    else:
        path = request.getfixturevalue(request.param)
    opened = _rooms(path)
    yield opened
    for room in (opened.warm, opened.cold):
        room.context.close()
        room.model.close()


def test_fifty_evictions_decode_only_the_new_message(rooms: Rooms) -> None:
    """With one layer nothing of the evicted is left in what stays: the logits are the same."""
    warm, cold = rooms.warm, rooms.cold
    system = message(list(range(20, 40)))
    turns = [message([20 + n, *([30 + n] * 20)]) for n in range(4)]
    layers = int(warm.model.metadata("llama.block_count") or 2)
    for number in range(50):
        prompt = [*system, *(t for turn in turns for t in turn)]
        sequence, logits, cached = warm.run(prompt)
        warm.check()
        warm.pool.release(sequence)
        if layers == 1:
            assert difference(logits, cold.fresh(prompt)) < TOLERANCE
        assert max(map(abs, logits)) < 1e4
        if number:
            assert cached >= len(prompt) - len(turns[-1]) - 1
        turns = [*turns[1:], message([20 + number % 40, *([60 - number % 7] * 20)])]
    assert warm.pool.counts.gaps_closed == 49


def test_two_gaps_are_closed_one_after_the_other(rooms: Rooms) -> None:
    warm = rooms.warm
    system, *turns = [message([20 + n, *range(20 + n, 55)]) for n in range(6)]
    held = [*system, *(t for turn in turns for t in turn)]
    warm.pool.release(warm.run(held)[0])
    prompt = [*system, *turns[1], *turns[3], *turns[4], *message([20, 21])]
    sequence, _, cached = warm.run(prompt)
    warm.check()
    assert cached >= len(prompt) - 5
    assert warm.pool.counts.gaps_closed == 2
    warm.pool.release(sequence)


def test_a_running_sequence_that_shares_the_tokens_is_left_alone(rooms: Rooms) -> None:
    warm, cold = rooms.warm, rooms.cold
    system, *turns = [message([20 + n, *range(20 + n, 55)]) for n in range(5)]
    held = [*system, *(t for turn in turns for t in turn)]
    warm.pool.release(warm.run(held)[0])
    running, _, cached = warm.run([*held, START, *([30] * 40)])
    warm.pool.release(running)
    running, _, cached = warm.run([*held, START, *([31] * 40)])
    assert cached > len(held)
    prompt = [*system, *turns[1], *turns[2], *turns[3], *message([20, 21])]
    other, logits, cached = warm.run(prompt)
    warm.check()
    assert warm.pool.counts.gaps_closed == 0
    assert difference(logits, cold.fresh(prompt)) < TOLERANCE
    longer = [*running.tokens, 33]
    warm.pool.release(running)
    again, logits, cached = warm.run(longer)
    assert cached == len(longer) - 1
    assert difference(logits, cold.fresh(longer)) < TOLERANCE
    warm.pool.release(other)
    warm.pool.release(again)


def test_moved_tokens_are_not_stored_before_they_are_computed(rooms: Rooms) -> None:
    """A request that ends before its first decode leaves keys of the old positions."""
    warm = rooms.warm
    system, *turns = [message([20 + n, *range(20 + n, 55)]) for n in range(5)]
    held = [*system, *(t for turn in turns for t in turn)]
    warm.pool.release(warm.run(held)[0])
    prompt = [*system, *turns[1], *turns[2], *turns[3], *message([20, 21])]
    sequence = warm.pool.acquire(Query(packed(prompt)))
    assert sequence is not None
    assert warm.pool.counts.gaps_closed == 1
    warm.pool.release(sequence)
    warm.pool.swap_out(sequence)
    assert len(warm.pool.host) == 0


@pytest.mark.parametrize("kind", ["gemma", "mamba", "hybrid"])
def test_memory_that_can_not_be_moved_is_not(kind: str, request: pytest.FixtureRequest) -> None:
    room = _rooms(request.getfixturevalue(kind)).warm
    assert not room.pool.shifts
    room.context.close()
    room.model.close()


@pytest.mark.parametrize("setting", ["on", "off"])
async def test_after_an_eviction_only_the_new_message_is_decoded(setting: str) -> None:
    reuse = setting == "on"
    async with loaded(PUP, reuse_after_eviction=reuse, cache_ram_mib=0) as backend:
        session = conversation()
        for number in range(12):
            session.add(Message.user(f"Hello, this is message number {number} of many."))
            if number > 6:
                del session.messages[:2]
            generation = await backend.generate_from_session(session, Recorder(), 8)
            session.add(generation.message)
            stats = generation.stats
            if number > 6:
                read = stats.prompt_tokens - stats.cached_tokens
                assert (read < 50) is reuse
