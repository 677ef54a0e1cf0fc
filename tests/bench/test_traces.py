"""Sessions as blocks: those of public traces, made ones, and the least that must be computed."""

import json
from itertools import combinations
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bench.traces.__main__ import TOLD, UNTOLD, table
from bench.traces.drive import Result
from bench.traces.sessions import (
    SHARED_BLOCKS,
    Request,
    Session,
    in_turn,
    least,
    made,
    optimum,
    prefixes,
    read,
    tokens,
)
from tests.examples import examples

BLOCKS = st.lists(st.integers(0, 3), min_size=1, max_size=8)
SESSIONS = st.lists(
    st.lists(st.tuples(BLOCKS, st.floats(0, 5)), min_size=1, max_size=5), min_size=1, max_size=4
)


def session(name: str, requests: list[tuple[list[int], float]]) -> Session:
    return Session(name, tuple(Request(wait, tuple(blocks), 10) for blocks, wait in requests))


@given(SESSIONS, st.integers(8, 40))
def test_no_cache_computes_less_than_the_optimum(
    plans: list[list[tuple[list[int], float]]], capacity: int
) -> None:
    sessions = [session(str(number), plan) for number, plan in enumerate(plans)]
    lowest = optimum(sessions)
    every = [tuple(r.blocks) for s in sessions for r in s.requests]
    assert lowest == len({blocks[:end] for blocks in every for end in range(1, len(blocks) + 1)})
    order = in_turn(sessions)
    assert sorted(order) == [(n, p) for n, s in enumerate(sessions) for p in range(len(s.requests))]
    for foresees in (True, False):
        assert least(sessions, order, 10_000, foresees=foresees) == lowest
    foreseen = least(sessions, order, capacity)
    assert lowest <= foreseen <= least(sessions, order, capacity, foresees=False)
    assert foreseen <= least(sessions, order, capacity - 1) <= sum(map(len, every))


PATHS = [(0,), (0, 0), (0, 1), (1,), (1, 0)]


@given(st.lists(st.sampled_from(PATHS), min_size=1, max_size=7))
def test_nobody_computes_less_than_the_oracle(paths: list[tuple[int, ...]]) -> None:
    """Every way to forget is tried."""
    everything = [session("a", [(list(path), 0.0) for path in paths])]
    reached: dict[frozenset[tuple[int, ...]], int] = {frozenset(): 0}
    for path in paths:
        needed = [path[:end] for end in range(1, len(path) + 1)]
        following: dict[frozenset[tuple[int, ...]], int] = {}
        for cached, computed in reached.items():
            known = next((i for i, prefix in enumerate(needed) if prefix not in cached), len(path))
            total = computed + len(path) - known
            held = sorted(cached | set(needed))
            for kept in map(frozenset, combinations(held, min(3, len(held)))):
                following[kept] = min(total, following.get(kept, total))
        reached = following
    order = [(0, place) for place in range(len(paths))]
    assert least(everything, order, 3) == min(reached.values())


@given(BLOCKS, BLOCKS)
def test_equal_prefixes_have_equal_numbers_and_tokens(one: list[int], other: list[int]) -> None:
    pairs = zip(prefixes(one), prefixes(other), strict=False)
    same = [a == b for a, b in pairs]
    assert same == [one[: i + 1] == other[: i + 1] for i in range(len(same))]
    assert (tokens(one, 4)[:4] == tokens(other, 4)[:4]) is (one[0] == other[0])


def test_made_sessions_are_like_real_ones() -> None:
    sessions = made(examples(200, 24), seed=1)
    assert sessions == made(len(sessions), seed=1)
    assert sessions[:2] != made(2, seed=2)
    shared = tuple(range(SHARED_BLOCKS))
    assert all(r.blocks[:SHARED_BLOCKS] == shared for s in sessions for r in s.requests)
    ends = sorted(64 * s.longest for s in sessions)
    assert 60_000 < ends[len(ends) // 2] < 180_000
    read_blocks = sum(len(r.blocks) for s in sessions for r in s.requests)
    assert 0.91 < 1 - optimum(sessions) / read_blocks < 0.99


def test_a_session_is_shortened_in_proportion() -> None:
    long = session("a", [([1], 4.0), ([1, 2], 2.0), ([1, 2, 3], 1.0), ([1, 2, 3, 4], 1.0)])
    short = long.shortened(blocks=3, requests=9, seconds=1.0)
    assert [r.wait for r in short.requests] == [1.0, 0.5, 0.25]
    assert long.shortened(blocks=9, requests=2, seconds=60.0).requests == long.requests[:2]
    assert long.shortened(blocks=0, requests=2, seconds=1.0).requests == ()


def test_a_public_trace_is_read(tmp_path: Path) -> None:
    first = {"t": 0.0, "out": 7, "hash_ids": [1, 2], "api_time": 2.0, "stop": "end_turn"}
    inner = {"t": 5.0, "in": 64, "out": 9, "hash_ids": [1], "think_time": 0.5}
    entries = [first, {"type": "subagent", "requests": [inner]}, {**first, "t": 9.0}]
    (tmp_path / "a.json").write_text(json.dumps({"requests": entries}))
    (tmp_path / "b.json").write_text(json.dumps({"requests": entries, "hash_id_scope": "global"}))
    (tmp_path / "c.json").write_text(json.dumps({"requests": []}))
    own, common = read(tmp_path)
    assert [(r.wait, r.answer) for r in common.requests] == [(0.0, 7), (0.5, 9), (7.0, 7)]
    assert [r.person for r in common.requests] == [False, False, True]
    assert [r.blocks for r in common.requests] == [(1, 2), (1,), (1, 2)]
    assert own.requests[0].blocks != common.requests[0].blocks
    assert optimum([own, common]) == 4


def test_a_side_that_failed_has_no_ratio_and_equal_counts_are_named() -> None:
    sessions = [session("a", [([1, 2], 0.0), ([1, 2, 3], 1.0)])]
    order = in_turn(sessions)
    told = Result(TOLD, computed=9, firsts=[0.1, 0.3], seconds=2.0, order=order)
    broken = Result("two", computed=10, failures=3, order=order)
    lines = table([told, broken], sessions, 3, size=2).splitlines()
    assert lines[2] == f"| {TOLD} | 1.50 × | 1.50 × | 200.0 ms | 300.0 ms | 2.0 s | 0 |"
    assert lines[3] == "| two | – | – | – | – | – | 3 |"
    assert lines[4].endswith("| 1.00 × | 1.00 × | – | – | – | 0 |")
    untold = Result(UNTOLD, computed=9, order=order)
    assert "no difference" in table([told, untold], sessions, 3, size=2)
    untold.computed = 12
    assert "no difference" not in table([told, untold], sessions, 3, size=2)
