"""The search for a prompt's longest known beginning, held against trying everything."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shepherd.backends.llamacpp.cache.prefixes import common_prefix, packed, usable_prefix
from shepherd.backends.llamacpp.cache.sequences import MAX_DISCARDED_TOKENS, CachedSequence
from tests.backends.llamacpp.rooms import START, Room, make_room
from tests.examples import examples

TOKENS = st.integers(20, 60) | st.just(START)


@given(
    common=st.lists(TOKENS, max_size=300),
    times=st.integers(1, 30),
    a=st.lists(TOKENS, max_size=3),
    b=st.lists(TOKENS, max_size=3),
)
@hypothesis_settings(max_examples=examples(80), deadline=None)
def test_common_prefix(common: list[int], times: int, a: list[int], b: list[int]) -> None:
    one, two = common * times + a, common * times + b
    found = common_prefix(packed(one), packed(two))
    assert one[:found] == two[:found]
    assert found in (len(one), len(two)) or one[found] != two[found]
    assert found == common_prefix(one, two) == common_prefix(packed(one), two)


class Tree:
    """A radix tree, uncompressed: what a prefix cache is usually built of."""

    def __init__(self) -> None:
        self._children: dict[int, Tree] = {}

    def add(self, tokens: list[int]) -> None:
        node = self
        for token in tokens:
            node = node._children.setdefault(token, Tree())

    def find(self, prompt: list[int]) -> int:
        """How many of the prompt's tokens are a path."""
        node, length = self, 0
        for token in prompt:
            if token not in node._children:
                return length
            node, length = node._children[token], length + 1
        return length


LISTS = st.lists(st.lists(st.integers(0, 2), max_size=20), max_size=8)


@given(known=LISTS, prompt=st.lists(st.integers(0, 2), min_size=1, max_size=20))
def test_the_longest_common_prefix_with_any_is_what_a_tree_of_all_finds(
    known: list[list[int]], prompt: list[int]
) -> None:
    tree = Tree()
    for tokens in known:
        tree.add(tokens)
    found = [usable_prefix(packed(t), (), packed(prompt), rolls_back=True) for t in known]
    assert max(found, default=0) == min(tree.find(prompt), len(prompt) - 1)


@given(
    tokens=st.lists(st.integers(0, 2), max_size=20),
    checkpoints=st.sets(st.integers(1, 20)),
    prompt=st.lists(st.integers(0, 2), min_size=1, max_size=20),
)
def test_without_rollback_only_all_tokens_or_a_checkpoint_are_a_start(
    tokens: list[int], checkpoints: set[int], prompt: list[int]
) -> None:
    lengths = sorted(length for length in checkpoints if length <= len(tokens))
    starts = [n for n in (0, *lengths, len(tokens)) if n < len(prompt) and tokens[:n] == prompt[:n]]
    found = usable_prefix(packed(tokens), lengths, packed(prompt), rolls_back=False)
    assert found == max(starts)


@pytest.fixture(scope="module", params=["llama", "mamba"])
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    path: Path = request.getfixturevalue(request.param)
    opened = make_room(path)
    yield opened
    opened.close()


def best_start(room: Room, prompt: list[int]) -> tuple[int, int]:
    """The longest start in memory and in host memory, found by trying everything."""

    def starts(tokens: list[int], checkpoints: list[int]) -> int:
        anywhere = range(len(tokens) + 1) if room.pool.rolls_back else (0, *checkpoints)
        known = [n for n in (*anywhere, len(tokens)) if n < len(prompt)]
        return max(n for n in known if tokens[:n] == prompt[:n])

    live = [starts(s.tokens, s.checkpoints.lengths) for s in room.pool.sequences]
    host = [starts(list(e.tokens), e.checkpoints.lengths) for e in room.pool.host.entries]
    return max(live), max(host, default=0)


EDITS = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.integers(0, 120),
        st.lists(TOKENS, min_size=1, max_size=50),
        st.booleans(),
    ),
    min_size=3,
    max_size=12,
)


@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(edits=EDITS)
def test_a_prompt_starts_from_the_longest_that_is_anywhere(
    room: Room, edits: list[tuple[int, int, list[int], bool]]
) -> None:
    """In a running or idle sequence; host memory only if that saves more than a few tokens.

    Each edit goes on from an earlier prompt; some keep their sequence running, which then stays
    as it is.
    """
    prompts: list[list[int]] = [[]]
    running: list[tuple[CachedSequence, list[int]]] = []
    try:
        for base, keep, tail, runs_on in edits:
            prompt = [*prompts[base % len(prompts)][:keep], *tail]
            prompts.append(prompt)
            live, host = best_start(room, prompt)
            sequence, _, cached = room.run(prompt)
            assert cached == (host if host - live > MAX_DISCARDED_TOKENS else live)
            running.append((sequence, prompt))
            if not runs_on or len(running) == 3:
                room.pool.release(running.pop(0)[0])
            for kept, tokens in running:
                assert kept.tokens == tokens
            room.check()
    finally:
        for kept, _ in running:
            room.pool.release(kept)
