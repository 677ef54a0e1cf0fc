"""How a batch is shared: full, fair, and short prompts first."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.scheduling.planner import shares

Prompts = list[tuple[int, int]]
ROOMS = st.integers(1, 600)


@st.composite
def prompts(draw: st.DrawFn) -> Prompts:
    """What prompts can use now, and what they have left."""
    return [
        (draw(st.integers(1, left)), left)
        for left in draw(st.lists(st.integers(1, 3_000), min_size=1, max_size=12))
    ]


def shared(waiting: Prompts, room: int) -> list[int]:
    return shares([usable for usable, _ in waiting], [left for _, left in waiting], room)


@given(prompts(), ROOMS)
def test_the_room_is_used_as_far_as_the_prompts_can(waiting: Prompts, room: int) -> None:
    sizes = shared(waiting, room)
    assert sum(sizes) == min(room, sum(usable for usable, _ in waiting))
    assert all(0 <= size <= usable for size, (usable, _) in zip(sizes, waiting, strict=True))


@given(prompts(), ROOMS)
def test_each_prompt_has_its_share_and_the_oldest_always_goes_on(
    waiting: Prompts, room: int
) -> None:
    sizes = shared(waiting, room)
    assert sizes[0] > 0
    for size, (usable, _) in zip(sizes, waiting, strict=True):
        assert size >= min(usable, room // (2 * len(waiting)))


@given(prompts(), ROOMS)
def test_the_shortest_has_half_the_room_whatever_the_others_have(
    waiting: Prompts, room: int
) -> None:
    place = min(range(len(waiting)), key=lambda place: waiting[place][1])
    assert shared(waiting, room)[place] >= min(waiting[place][0], room // 2)


@given(st.integers(1, 12), st.integers(1, 3_000), ROOMS)
def test_of_equal_prompts_the_older_ends_first(count: int, length: int, room: int) -> None:
    left = [length] * count
    while any(left):
        waiting = [tokens for tokens in left if tokens]
        sizes = shares(waiting, waiting, room)
        given = iter(sizes)
        left = [tokens - next(given) if tokens else 0 for tokens in left]
        assert all(older <= younger for older, younger in pairwise(left))


def test_nobody_shares_with_one() -> None:
    assert shares([500], [900], 128) == [128]
    assert shares([], [], 128) == []
