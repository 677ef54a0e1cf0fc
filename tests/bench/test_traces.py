"""Sessions as blocks: those of public traces, made ones, and the least that must be computed."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bench.traces.__main__ import table
from bench.traces.drive import Result
from bench.traces.sessions import (
    SHARED_BLOCKS,
    Request,
    Session,
    least_recently_used,
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
    least = optimum(sessions)
    every = [tuple(r.blocks) for s in sessions for r in s.requests]
    assert least == len({blocks[:end] for blocks in every for end in range(1, len(blocks) + 1)})
    assert least_recently_used(sessions, 10_000) == least
    assert least <= least_recently_used(sessions, capacity) <= sum(map(len, every))


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
    first = {"t": 0.0, "in": 128, "out": 7, "hash_ids": [1, 2], "api_time": 2.0}
    inner = {"t": 5.0, "in": 64, "out": 9, "hash_ids": [1], "think_time": 0.5}
    entries = [first, {"type": "subagent", "requests": [inner]}, {**first, "t": 9.0}]
    (tmp_path / "a.json").write_text(json.dumps({"requests": entries}))
    (tmp_path / "b.json").write_text(json.dumps({"requests": entries, "hash_id_scope": "global"}))
    (tmp_path / "c.json").write_text(json.dumps({"requests": []}))
    own, common = read(tmp_path)
    assert [(r.wait, r.answer) for r in common.requests] == [(0.0, 7), (0.5, 9), (7.0, 7)]
    assert [r.blocks for r in common.requests] == [(1, 2), (1,), (1, 2)]
    assert own.requests[0].blocks != common.requests[0].blocks
    assert optimum([own, common]) == 4


def test_a_side_that_failed_has_no_ratio() -> None:
    whole = Result("one", computed=150, firsts=[0.1, 0.3], seconds=2.0)
    broken = Result("two", computed=10, failures=3)
    lines = table([whole, broken], 100).splitlines()
    assert lines[2] == "| one | 1.50 × | 200.0 ms | 300.0 ms | 2.0 s | 0 |"
    assert lines[3] == "| two | – | – | – | – | 3 |"
