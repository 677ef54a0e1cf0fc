"""The mirror against llama.cpp itself, on each kind of memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shepherd.backends.llamacpp.cache.prefixes import Query, packed
from shepherd.backends.llamacpp.cache.sequences import MAX_DISCARDED_TOKENS, CachedSequence
from shepherd.backends.llamacpp.native.batch import Span
from tests.backends.llamacpp.rooms import (
    HOST_BYTES,
    KINDS,
    START,
    TOLERANCE,
    Room,
    difference,
    make_room,
    memory_settings,
    opened,
)
from tests.examples import examples

SEQUENCES = 3


def open_pair(kind: str, request: pytest.FixtureRequest, sequences: int) -> tuple[Room, Room]:
    """A room that caches, and one that is cleared before each prompt."""
    path: Path = request.getfixturevalue(kind.split()[0])
    one, two = (make_room(path, sequences, **memory_settings(kind)) for _ in range(2))
    return one, two


@pytest.fixture(scope="module", params=KINDS)
def rooms(request: pytest.FixtureRequest) -> Iterator[tuple[Room, Room]]:
    opened = open_pair(request.param, request, SEQUENCES)
    yield opened
    for room in opened:
        room.close()


def test_only_recurrent_memory_refuses_to_forget_a_part(rooms: tuple[Room, Room]) -> None:
    room = rooms[0]
    recurrent = room.model.keeps_state
    assert room.pool.rolls_back is not recurrent
    assert room.context.decoded_tokens == 0


TOKENS = st.integers(20, 60) | st.just(START)
EDITS = st.lists(
    st.tuples(st.integers(0, 40), st.lists(TOKENS, min_size=1, max_size=30), st.booleans()),
    min_size=2,
    max_size=8,
)


@hypothesis_settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(edits=EDITS)
def test_whatever_is_cached_the_logits_are_those_of_a_fresh_start(
    rooms: tuple[Room, Room], edits: list[tuple[int, list[int], bool]]
) -> None:
    """Each edit keeps a prefix of the prompt before and goes on differently, or holds a slot."""
    warm, cold = rooms
    prompt: list[int] = []
    held: list[CachedSequence] = []
    for keep, tail, hold in edits:
        prompt = prompt[:keep] + tail
        if len(held) == SEQUENCES - 1:
            warm.pool.release(held.pop(0))
        sequence, logits, _ = warm.run(prompt)
        held.append(sequence)
        if not hold:
            warm.pool.release(held.pop())
        warm.check()
        worst = difference(logits, cold.fresh(prompt))
        if worst > TOLERANCE:
            break
    else:
        worst = 0.0
    for sequence in held:
        warm.pool.release(sequence)
    assert worst < TOLERANCE


def test_a_continued_prompt_decodes_only_what_is_new(rooms: tuple[Room, Room]) -> None:
    room = rooms[0]
    prompt = list(range(20, 60))
    sequence, _, _ = room.run(prompt)
    room.pool.release(sequence)
    before = room.context.decoded_tokens
    again, _, cached = room.run([*prompt, 30, 31])
    assert (again, cached) == (sequence, len(prompt))
    assert room.context.decoded_tokens - before == 2
    room.pool.release(again)


def test_a_prompt_that_is_all_there_decodes_its_last_token(rooms: tuple[Room, Room]) -> None:
    room = rooms[0]
    prompt = list(range(25, 60))
    first, _, _ = room.run(prompt)
    room.pool.release(first)
    second, _, cached = room.run(prompt)
    assert cached in (len(prompt) - 1, len(prompt) - 4)
    assert cached == len(prompt) - 1 or not room.pool.rolls_back
    room.pool.release(second)


def test_an_edited_or_repeated_message_decodes_from_its_start(rooms: tuple[Room, Room]) -> None:
    warm, cold = rooms
    before = [START, *range(20, 60), START, *range(20, 50)]
    last, answer = [START, 21, *range(30, 58)], [START, 22]
    sequence, _, _ = warm.run([*before, *last, *answer])
    warm.pool.release(sequence)
    for prompt, kept in (
        ([*before, *last, *answer], len(before) + len(last)),
        ([*before, *last[:6], 59, 59, *answer], len(before)),
    ):
        again, logits, cached = warm.run(prompt)
        warm.pool.release(again)
        warm.check()
        assert cached >= kept
        assert difference(logits, cold.fresh(prompt)) < TOLERANCE


def test_two_conversations_behind_one_beginning_both_stay_warm(rooms: tuple[Room, Room]) -> None:
    """Alternating clients take different sequences; the beginning is shared, not decoded."""
    room = rooms[0]
    shared = [40 + i % 13 for i in range(100)]
    clients = [[*shared, *([30] * 60)], [*shared, *([50] * 60)]]
    for turn in range(3):
        for number, prompt in enumerate(clients):
            known = len(prompt)
            prompt.extend([20 + turn] * 10)
            sequence, _, cached = room.run(prompt)
            room.pool.release(sequence)
            if turn:
                assert cached == known
            elif number and room.pool.rolls_back:
                assert cached == len(shared)


def test_the_oldest_idle_sequence_goes_first(rooms: tuple[Room, Room]) -> None:
    room = rooms[0]
    for sequence in room.pool.sequences:
        room.pool.mirror.clear(sequence)
    assert not room.pool.drop_idle()
    prompts = [[20 + i] * 40 for i in range(SEQUENCES)]
    used = [room.run(prompt)[0] for prompt in prompts]
    assert len({s.id for s in used}) == SEQUENCES
    for sequence in used[1:]:
        room.pool.release(sequence)
    assert room.pool.drop_idle()
    assert [bool(s.tokens) for s in used] == [True, False, True]
    room.pool.release(used[0])


def test_a_running_sequence_shares_its_beginning(rooms: tuple[Room, Room]) -> None:
    """A fork at a message's start costs nothing, and the parent goes on undisturbed."""
    warm, cold = rooms
    shared = [START, *range(20, 58), START, 31]
    parent, _, _ = warm.run([*shared, 40, 41])
    child_prompt = [*shared[:-2], START, *range(30, 40), START, 33]
    child, logits, cached = warm.run(child_prompt)
    assert child is not parent
    assert cached >= len(shared) - 2
    assert difference(logits, cold.fresh(child_prompt)) < TOLERANCE
    warm.pool.release(parent)
    again, logits, cached = warm.run([*shared, 40, 41, 42])
    assert cached == len(shared) + 2
    assert difference(logits, cold.fresh([*shared, 40, 41, 42])) < TOLERANCE
    warm.check()
    warm.pool.release(child)
    warm.pool.release(again)


@pytest.fixture(params=KINDS)
def pairs(request: pytest.FixtureRequest) -> Iterator[tuple[Room, Room]]:
    """As `rooms`, with two sequences."""
    opened = open_pair(request.param, request, 2)
    yield opened
    for room in opened:
        room.close()


def test_more_conversations_than_sequences_stay_warm(pairs: tuple[Room, Room]) -> None:
    """Six conversations take turns on two sequences; each goes on where it was."""
    warm, cold = pairs
    system = [START, *range(20, 40)]
    clients = [[*system, START, *([20 + n] * 40)] for n in range(6)]
    for turn in range(4):
        for number, prompt in enumerate(clients):
            known = len(prompt)
            prompt.extend([START, *([30 + turn + number] * 5), START, 50 + number])
            sequence, logits, cached = warm.run(prompt)
            warm.check()
            assert difference(logits, cold.fresh(prompt)) < TOLERANCE
            if turn:
                assert cached == known
                assert sequence.restored == known
            warm.pool.release(sequence)
    counts = warm.pool.counts
    assert counts.hits["host"] == 18
    assert counts.swap_out >= 18
    assert 0 < warm.pool.host.bytes <= HOST_BYTES


def test_conversations_without_control_tokens_come_back(pairs: tuple[Room, Room]) -> None:
    """As with ChatML for a model that does not know it: only the first token is a control token."""
    warm, cold = pairs
    prompts = [[START, *([20 + n, 40 + n] * 50), 60] for n in range(4)]
    for turn in range(3):
        for prompt in prompts:
            sequence, logits, cached = warm.run(prompt)
            answer = [30, 31, 32]
            warm.context.decode([Span(sequence.id, sequence.position, answer, wants_logits=True)])
            warm.pool.mirror.extend(sequence, answer)
            warm.pool.release(sequence)
            warm.check()
            if turn:
                assert cached >= len(prompt) - 4
            assert difference(logits, cold.fresh(prompt)) < TOLERANCE


def test_host_memory_keeps_to_its_cap(pairs: tuple[Room, Room]) -> None:
    room, _ = pairs
    room.pool.host.capacity = cap = 256 * 1024
    for number in range(24):
        sequence, _, _ = room.run([START, *([20 + number] * 60), START, 30])
        room.pool.release(sequence)
        assert room.pool.host.bytes <= cap
    assert len(room.pool.host) > 1
    room.pool.host.capacity = 0
    before = len(room.pool.host)
    sequence, _, _ = room.run([START, *([50] * 60), START, 30])
    room.pool.release(sequence)
    assert len(room.pool.host) <= before


def test_a_restore_that_takes_longer_than_decoding_is_left(pairs: tuple[Room, Room]) -> None:
    room, _ = pairs
    prompts = [[START, *([20 + number] * 60), START, 30] for number in range(3)]
    for prompt in prompts:
        room.pool.release(room.run(prompt)[0])
    fast = room.pool.acquire(Query(packed(prompts[0])), 1e12)
    assert fast is not None
    assert fast.restored == 0
    assert len(fast.tokens) <= 1
    room.pool.release(fast)
    slow = room.pool.acquire(Query(packed([*prompts[1], 31])), 10.0)
    assert slow is not None
    assert slow.restored == len(slow.tokens) == len(prompts[1])
    room.pool.release(slow)


def test_a_window_that_was_cut_off_is_not_built_upon(gemma: Path) -> None:
    """Host memory keeps only a window's end: what begins before it is decoded again."""
    warm, cold = make_room(gemma, 2), make_room(gemma, 2)
    prompts = [[START, *([20 + number] * 60), START, 30] for number in range(3)]
    for prompt in prompts:
        warm.pool.release(warm.run(prompt)[0])
    again, _, cached = warm.run([*prompts[0], 31])
    assert cached == len(prompts[0])
    for keep, hold in ((55, True), (50, False)):
        prompt = [*prompts[0][:keep], 40, 41]
        sequence, logits, _ = warm.run(prompt)
        warm.check()
        assert difference(logits, cold.fresh(prompt)) < TOLERANCE
        if hold:
            warm.pool.release(again)
        warm.pool.release(sequence)
    for room in (warm, cold):
        room.close()


def test_drafted_tokens_are_removed_or_stay(rooms: tuple[Room, Room]) -> None:
    warm, cold = rooms
    prompt = [START, *range(20, 58), START, *range(30, 50)]
    sequence, _, _ = warm.run(prompt)
    drafted = [41, 42, 43]
    warm.context.decode([Span(sequence.id, sequence.position, drafted, wants_logits=True)])
    warm.pool.mirror.extend(sequence, drafted)
    if warm.pool.rolls_back:
        warm.pool.mirror.trim(sequence, len(prompt) + 1)
        assert sequence.tokens == [*prompt, 41]
    warm.check()
    longer = [*sequence.tokens, 44]
    warm.pool.release(sequence)
    again, logits, cached = warm.run(longer)
    assert cached == len(longer) - 1
    assert difference(logits, cold.fresh(longer)) < TOLERANCE
    warm.pool.release(again)


def test_few_tokens_are_cut_off_in_place_and_more_are_kept_elsewhere(llama: Path) -> None:
    with opened(llama, SEQUENCES) as room:
        whole = list(range(20, 60)) * 2
        first, _, _ = room.run(whole)
        room.pool.release(first)
        at_limit = [*whole[: len(whole) - MAX_DISCARDED_TOKENS], START, START]
        again, _, cached = room.run(at_limit)
        assert (again, cached) == (first, len(whole) - MAX_DISCARDED_TOKENS)
        room.pool.release(again)

        more = [*at_limit, *range(20, 20 + MAX_DISCARDED_TOKENS - 1)]
        again, _, _ = room.run(more)
        room.pool.release(again)
        other, _, cached = room.run([*at_limit[:-2], 59, 59])
        assert other is not again
        assert cached == len(at_limit) - 2
        assert list(again.tokens) == more
        room.pool.release(other)


def test_what_happens_to_sequences_is_counted_once(llama: Path) -> None:
    with opened(llama, SEQUENCES) as room:
        counts = room.pool.counts
        sequence, _, _ = room.run(list(range(20, 50)))
        room.pool.release(sequence)
        assert (counts.hits.total(), counts.cleared, counts.swap_out) == (0, 0, 0)
        room.pool.swap_out(sequence)
        room.pool.swap_out(sequence)  # it is empty
        assert (counts.hits.total(), counts.cleared, counts.swap_out) == (0, 1, 0)


def test_an_idle_sequence_is_taken_before_a_busy_one_with_the_same_tokens(llama: Path) -> None:
    with opened(llama, SEQUENCES) as room:
        prompt = list(range(20, 50))
        busy, _, _ = room.run(prompt)
        idle, _, _ = room.run(prompt)
        room.pool.release(idle)
        busy_again, _, _ = room.run(prompt)
        assert busy_again is idle
        room.pool.release(idle)
        room.pool.release(busy)


def test_only_attention_over_shared_cells_is_crowded(rooms: tuple[Room, Room]) -> None:
    room = rooms[0]
    recurrent = room.model.keeps_state
    assert room.pool.is_crowded_by_others is not recurrent
