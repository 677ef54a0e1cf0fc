"""The order of leaving: what returns soonest stays, and what returns last loses its end."""

from math import inf
from pathlib import Path
from random import Random
from time import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.base import Lease
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.cache.prefixes import Query, packed
from shepherd.backends.llamacpp.cache.returns import PERSON_SECONDS, Return, last_to_return
from shepherd.backends.llamacpp.cache.sequence import CachedSequence, HostCache, StoredSequence
from shepherd.backends.llamacpp.tool_times import UNKNOWN_SECONDS, ToolTimes
from shepherd.events import ignore_events
from shepherd.messages import Message, ToolCall
from shepherd.session import RawPrompt, Session
from tests.backends.llamacpp.floor import Floor
from tests.backends.llamacpp.rooms import Room, opened
from tests.backends.llamacpp.support import loaded
from tests.backends.llamacpp.tiny import write_llama

CELLS = 1024


def waiting(ago: float, seconds: float | None, asking: int) -> Return:
    return Return(time() - ago, seconds, asking)


RETURNS = st.builds(
    waiting,
    st.floats(0, 300),
    st.none() | st.floats(0, 300) | st.just(inf),
    st.sampled_from([0, 0, 0, 1]),
)


def held(returns: Return, number: int = 0, size: int = 100) -> StoredSequence:
    return StoredSequence(packed([number] * 4), bytearray(size), returns=returns)


def rank(returns: Return) -> int:
    """Who has no more to ask, persons, tools, and who asks already."""
    if returns.asking:
        return 3
    return 1 if returns.seconds is None else 0 if returns.seconds == inf else 2


@given(st.lists(RETURNS, min_size=1, max_size=12))
def test_the_ended_leave_first_then_persons_then_tools_then_who_asks(every: list[Return]) -> None:
    left: list[StoredSequence] = [held(returns) for returns in every]
    order: list[Return] = []
    while left:
        order.append(last_to_return(left).returns)
        left = [one for one in left if one.returns is not order[-1]]
    assert [rank(returns) for returns in order] == sorted(rank(returns) for returns in every)
    persons = [returns.since for returns in order if rank(returns) == 1]
    assert persons == sorted(persons)


@given(st.floats(0, 1000), st.floats(0, 2000))
def test_a_tool_that_is_late_is_expected_to_be_late_as_long_again(
    seconds: float, waited: float
) -> None:
    remaining = Return(1000.0, seconds).remaining(1000.0 + waited)
    assert remaining == pytest.approx(abs(seconds - waited))
    assert Return(1000.0).remaining(1000.0 + waited) >= PERSON_SECONDS


@given(st.lists(st.tuples(RETURNS, st.integers(10, 900)), min_size=1, max_size=10))
def test_host_memory_keeps_what_returns_soonest(entries: list[tuple[Return, int]]) -> None:
    cache = HostCache(2000)
    for number, (returns, size) in enumerate(entries):
        new = held(returns, number, size)
        asked = CachedSequence(0, list(new.tokens), returns=returns)
        is_wanted = cache.wants(asked, size)
        evicted = cache.put(new)
        now = time()
        kept = max((entry.returns.remaining(now) for entry in cache.entries), default=0.0)
        assert all(entry.returns.remaining(now) >= kept - 1 for entry in evicted)
        if is_wanted:
            assert new in cache.entries
        assert cache.bytes <= cache.capacity


def test_times_of_tools_are_learned_from_the_ids_of_calls() -> None:
    now = 0.0
    times = ToolTimes(lambda: now)
    slow, quick = ToolCall("1", "shell", {}), ToolCall("2", "read", {})
    assert times.expect([]) is None
    assert times.expect([slow, quick]) == UNKNOWN_SECONDS
    now = 40.0
    answer = Message.assistant("", tool_calls=(slow, quick))
    results = [Message.user("go"), answer, Message.tool(slow, "a"), Message.tool(quick, "b")]
    for _ in range(2):  # a prompt that is sent again teaches nothing
        times.learn(results)
        assert times.seconds == {"shell": 40.0}
        now = 900.0
    assert times.expect([ToolCall("3", "shell", {}), ToolCall("4", "read", {})]) == 40.0
    now = 910.0
    times.learn([Message.tool(ToolCall("4", "read", {}), "b"), Message.user("and this")])
    assert 10.0 < times.seconds["shell"] < 40.0
    times.learn([Message.tool(ToolCall("9", "unheard", {}), "c")])
    assert list(times.seconds) == ["shell"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 100)), min_size=1, max_size=20))
def test_an_expected_time_is_one_that_was_seen(calls: list[tuple[str, float]]) -> None:
    now, times, seen = 0.0, ToolTimes(lambda: now), dict[str, list[float]]()
    for number, (name, taken) in enumerate(calls):
        call = ToolCall(str(number), name, {})
        expected = times.expect([call])
        known = seen.setdefault(name, [])
        low, high = min(known, default=UNKNOWN_SECONDS), max(known, default=UNKNOWN_SECONDS)
        assert expected is not None
        assert low - 1e-6 <= expected <= high + 1e-6
        now += taken
        times.learn([Message.tool(call, "done")])
        known.append(taken)


@pytest.fixture(scope="module")
def small_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("returns") / "small.gguf", context=CELLS, layers=1)


def words(count: int, seed: int) -> list[int]:
    chance = Random(seed)
    return [chance.randrange(20, 60) for _ in range(count)]


def finished(room: Room, prompt: list[int], seconds: float | None) -> Return:
    """Read a prompt whose session then waits."""
    room.finish(prompt)
    returns = room.pool.sessions.ask(Query(packed([*prompt, 20])), "")
    returns.note_end()
    room.pool.sessions.expect(returns, seconds)
    return returns


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_a_state_comes_back_while_the_tool_still_runs(
    small_llama: Path, tmp_path: Path, tier: str
) -> None:
    host = 1 << 24 if tier == "host" else 0
    with opened(small_llama, 2, host=host, cache=tmp_path) as room:
        prompt = words(400, 1)
        finished(room, prompt, 60.0)
        assert not room.pool.bring_back()  # it is there
        while room.pool.drop_idle():
            pass
        if room.pool.disk is not None:
            room.pool.disk.close()  # waits until it is written
        assert room.pool.bring_back()
        assert not room.pool.bring_back()
        back = room.pool.acquire(Query(packed([*prompt, 20])))
        assert back is not None
        assert back.tokens == prompt
        assert room.pool.counts.hits == {"memory": 1}
        room.check()


@pytest.mark.parametrize("why", ["person", "over", "no room", "asks already"])
def test_what_is_not_awaited_or_has_no_room_stays_away(small_llama: Path, why: str) -> None:
    with opened(small_llama, 3, host=1 << 24) as room:
        seconds = {"person": None, "over": inf}.get(why, 60.0)
        returns = finished(room, words(400, 1), seconds)
        while room.pool.drop_idle():
            pass
        if why == "no room":
            room.finish(words(700, 2))
        if why == "asks already":
            returns.asking += 1
        assert not room.pool.bring_back()


def test_a_prompt_that_does_not_fit_beside_others_waits_and_is_read_once(small_llama: Path) -> None:
    floor = Floor(small_llama, 3)
    floor.context.decoded_tokens = 0
    parent = floor.start(words(600, 1), 20)
    floor.scheduler.step()
    fork = floor.start([*words(600, 1)[:300], *words(100, 2)], 20)
    other = floor.start(words(600, 3), 20)
    floor.run()
    assert all(len(floor.answer(job)) == 20 for job in (parent, fork, other))
    # What a fork shares is there, and an answer's last token is not decoded.
    assert floor.context.decoded_tokens <= 600 + 400 + 600 + 3 * 19
    floor.close()


def test_only_the_end_leaves_of_what_no_other_tier_takes(small_llama: Path) -> None:
    with opened(small_llama, 2, host=0) as room:
        prompt = words(600, 1)
        room.finish(prompt)
        room.finish(words(300, 2))
        assert room.pool.drop_idle(200)
        lengths = sorted(len(sequence.tokens) for sequence in room.pool.sequences)
        assert lengths[0] == 300
        assert 500 <= lengths[1] <= 530
        _, cached = room.finish([*prompt, 20])
        assert cached == lengths[1]
        room.check()


async def read(session: Session, backend: LlamaCppBackend, tokens: list[int]) -> int:
    """Let Pup read a prompt; how many of its tokens were cached."""
    session.raw_prompt = RawPrompt(tuple(tokens))
    generation = await backend.generate_from_session(session, ignore_events, 1)
    return generation.stats.cached_tokens


async def test_the_one_that_waits_for_a_tool_keeps_its_cells_and_the_ended_one_does_not() -> None:
    async with loaded(parallel=3, context_size=512, cache_ram_mib=0) as backend:
        working, ended, third = (Session(id=name) for name in ("working", "ended", "third"))
        prompts = [[300 + token for token in words(count, count)] for count in (170, 171, 300)]
        await read(working, backend, prompts[0])
        await read(ended, backend, prompts[1])  # which was used last
        backend.note_lease(Lease("working", 5.0))
        backend.note_lease(Lease("ended", inf))
        backend.note_lease(Lease("nobody", 5.0))
        await read(third, backend, prompts[2])
        assert await read(working, backend, [*prompts[0], 300]) >= 170
        assert await read(ended, backend, [*prompts[1], 300]) < 171
