"""A provider with several servers: affinity, failures, checks."""

import asyncio
import random
from pathlib import Path

import pytest

from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.base import Health
from shepherd.backends.upstreams import UpstreamsBackend
from shepherd.errors import AccessError, BusyError, InvalidRequestError, UnreachableError
from shepherd.events import CallbackEvent, FinishReason, ignore_events
from tests.backends.api.support import Events
from tests.backends.api.upstream import Reply
from tests.backends.upstreams.scripted import (
    ALWAYS,
    BUSY,
    FAILING,
    GONE,
    Server,
    ask,
    cluster,
    conversation,
    until,
)


def trio() -> tuple[Server, Server, Server]:
    return Server("a"), Server("b"), Server("c")


def health(backend: UpstreamsBackend) -> list[Health]:
    return [state.health for state in backend.status.upstreams]


async def test_a_conversation_stays_with_one_server(tmp_path: Path) -> None:
    servers = trio()
    async with cluster(tmp_path, *servers) as backend:
        for number in range(12):
            texts, answers = [f"question {number}"], set[str]()
            for turn in range(3):
                answer = await ask(backend, *texts)
                answers.add(answer)
                texts += [answer, f"and {turn}?"]
            assert len(answers) == 1
        assert sum(state.requests for state in backend.status.upstreams) == 36
        assert min(len(server.answered) for server in servers) > 0
        assert [state.cached_tokens for state in backend.status.upstreams] == [
            5 * len(server.answered) for server in servers
        ]


async def test_a_busy_server_leaves_conversations_to_others(tmp_path: Path) -> None:
    servers = trio()
    async with cluster(tmp_path, *servers, affinity_slack=0) as backend:
        first = await ask(backend, "hello")
        owner = next(server for server in servers if server.name == first)
        owner.held = asyncio.Event()
        running = asyncio.create_task(ask(backend, "hello", first, "wait"))
        await until(lambda: len(owner.answered) == 2)
        assert [state.running for state in backend.status.upstreams if state.running] == [1]
        assert await ask(backend, "hello", first, "now") != first
        owner.held.set()
        assert await running == first
        assert await ask(backend, "hello", first, "wait", first, "then") == first
    assert all(state.running == 0 for state in backend.status.upstreams)


@pytest.mark.parametrize("failure", [GONE, FAILING, BUSY], ids=["gone", "failing", "busy"])
async def test_a_request_goes_elsewhere_and_the_server_gets_no_others(
    failure: Reply, tmp_path: Path
) -> None:
    servers = trio()
    async with cluster(tmp_path, *servers) as backend:
        first = await ask(backend, "hello")
        owner = next(server for server in servers if server.name == first)
        owner.failure = failure
        events = Events()
        session = conversation("hello", first, "again")
        generation = await backend.generate_from_session(session, events)
        assert generation.message.content != first
        assert events.of(CallbackEvent.ERROR) == []
        refused = len(owner.answered)
        for number in range(9):
            assert await ask(backend, f"other {number}") != first
        assert len(owner.answered) == refused
        [state] = [s for s in backend.status.upstreams if s.url == owner.url]
        assert (state.health is Health.UP, state.failures) == (False, 1)
        assert ("slow down" if failure is BUSY else "") in state.error


async def test_a_server_that_is_back_gets_requests_again(tmp_path: Path) -> None:
    servers = trio()
    async with cluster(tmp_path, *servers, checks=ALWAYS) as backend:
        for server in servers[:2]:
            server.failure = GONE
        await until(lambda: health(backend) == [Health.DOWN, Health.DOWN, Health.UP])
        assert {await ask(backend, f"question {n}") for n in range(6)} == {"c"}
        for server in servers[:2]:
            server.failure = None
        await until(lambda: set(health(backend)) == {Health.UP})
        assert len({await ask(backend, f"new {n}") for n in range(30)}) == 3


async def test_an_answer_that_breaks_ends_there_and_the_next_request_is_elsewhere(
    tmp_path: Path,
) -> None:
    servers = trio()
    async with cluster(tmp_path, *servers) as backend:
        first = await ask(backend, "hello")
        owner = next(server for server in servers if server.name == first)
        owner.cut = True
        events = Events()
        session = conversation("hello", first, "again")
        generation = await backend.generate_from_session(session, events)
        assert (generation.message.content, generation.finish_reason) == (first, FinishReason.ERROR)
        assert generation.broken
        assert sum(len(server.answered) for server in servers) == 2
        assert [state.failures for state in backend.status.upstreams if state.failures] == [1]
        owner.cut = False
        await until(lambda: set(health(backend)) == {Health.UP})


async def test_a_stuck_server_loses_its_request_and_is_not_trusted_for_its_list(
    tmp_path: Path,
) -> None:
    """It still lists its models, so only an answer shows that it works again."""
    servers = trio()
    async with cluster(tmp_path, *servers, first_byte_seconds=0.3) as backend:
        first = await ask(backend, "hello")
        owner = next(server for server in servers if server.name == first)
        owner.stuck = asyncio.Event()
        assert await ask(backend, "hello", first, "again") != first
        checked, asked = owner.checked, len(owner.answered)
        await until(lambda: owner.checked > checked + 2)
        assert len(owner.answered) > asked
        assert health(backend).count(Health.DOWN) == 1
        owner.stuck.set()
        owner.stuck = None
        await until(lambda: set(health(backend)) == {Health.UP})


async def test_an_answer_that_has_begun_may_take_its_time(tmp_path: Path) -> None:
    server = Server("a", held=asyncio.Event())
    async with cluster(tmp_path, server, Server("b"), first_byte_seconds=0.2) as backend:
        asked = [asyncio.create_task(ask(backend, str(number))) for number in range(6)]
        await asyncio.sleep(0.4)
        assert server.held is not None
        server.held.set()
        assert set(await asyncio.gather(*asked)) == {"a", "b"}
        assert set(health(backend)) == {Health.UP}


async def test_half_an_answer_that_nobody_reads_is_made_elsewhere(tmp_path: Path) -> None:
    servers = trio()
    async with cluster(tmp_path, *servers) as backend:
        first = await ask(backend, "hello")
        owner = next(server for server in servers if server.name == first)
        owner.cut = True
        async with await backend.prefill_session(
            conversation("hello", first, "again"), ignore_events
        ) as whole:
            whole.wants_pieces = False
            generation = await backend.generate_from_prefilled(whole, ignore_events)
        assert generation.finish_reason is FinishReason.STOP
        assert generation.message.content in {server.name for server in servers if not server.cut}


@pytest.mark.parametrize(("status", "error"), [(400, InvalidRequestError), (401, AccessError)])
async def test_a_request_that_is_wrong_is_wrong_everywhere(
    status: int, error: type[Exception], tmp_path: Path
) -> None:
    servers = trio()
    async with cluster(tmp_path, *servers) as backend:
        for server in servers:
            server.failure = Reply({"error": {"message": "no"}}, status=status)
        with pytest.raises(error):
            await ask(backend, "hello")
        assert sum(len(server.answered) for server in servers) == 1
        assert all(state.running == 0 for state in backend.status.upstreams)


async def test_all_servers_are_tried_in_each_round_before_the_error(tmp_path: Path) -> None:
    servers = trio()
    async with cluster(tmp_path, *servers) as backend:
        for server in servers:
            server.failure = FAILING
        with pytest.raises(UnreachableError, match="cluster"):
            await ask(backend, "hello")
        assert [len(server.answered) for server in servers] == [2, 2, 2]
        await until(lambda: set(health(backend)) == {Health.DOWN})
        assert not await backend.reachable()
        servers[1].failure = None
        assert await ask(backend, "hello") == "b"
        assert await backend.reachable()


async def test_a_server_may_come_later(tmp_path: Path) -> None:
    a, b = Server("a", context=8192), Server("b", failure=FAILING)
    async with cluster(tmp_path, a, b) as backend:
        assert backend.info.context_size == 8192
        assert "1 of 2 servers don't answer." in backend.take_warning()
        assert await ask(backend, "hello") == "a"
        b.failure = None
        await until(lambda: set(health(backend)) == {Health.UP})
        assert {await ask(backend, f"question {n}") for n in range(20)} == {"a", "b"}
        assert backend.info.context_size == 4096


async def test_no_server_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="cluster"):
        async with cluster(tmp_path, Server("a", failure=GONE), Server("b", failure=GONE)):
            pass


async def test_limits_and_estimates_are_those_of_the_provider(tmp_path: Path) -> None:
    async with cluster(tmp_path, *trio(), requests_per_minute=7) as backend:
        opened = [upstream.backend for upstream in backend.group.upstreams]
        apis = [api for api in opened if isinstance(api, ApiBackend)]
        assert len({id(api.client.limiter) for api in apis}) == 1
        assert len({id(api.estimator) for api in apis}) == 1
        count = await backend.count_session_tokens(conversation("hello"))
        assert count > 0


async def test_a_cancelled_request_frees_its_server(tmp_path: Path) -> None:
    server = Server("a", held=asyncio.Event())
    async with cluster(tmp_path, server, Server("b", failure=GONE)) as backend:
        task = asyncio.create_task(ask(backend, "hello"))
        await until(lambda: bool(server.answered))
        task.cancel()
        await asyncio.wait([task])
        assert [state.running for state in backend.status.upstreams] == [0, 0]
        stopped = await backend.generate_from_session(conversation("hello"), Events(stop_at=0))
        assert stopped.finish_reason is FinishReason.CANCELLED
        assert [(s.running, s.failures) for s in backend.status.upstreams] == [(0, 0), (0, 0)]


async def test_no_request_is_lost_while_one_server_works(tmp_path: Path) -> None:
    chance, servers = random.Random(7), trio()
    async with cluster(tmp_path, *servers) as backend:
        for turn in range(15):
            working = chance.choice(servers)
            for server in servers:
                failure = chance.choice([None, GONE, FAILING, BUSY])
                server.failure = None if server is working else failure
            prompts = [f"{chance.randrange(5)} {turn}" for _ in range(4)]
            answers = await asyncio.gather(*(ask(backend, prompt) for prompt in prompts))
            assert set(answers) <= {"a", "b", "c"}
        assert all(state.running == 0 for state in backend.status.upstreams)


async def test_nothing_is_asked_of_a_closed_provider(tmp_path: Path) -> None:
    server = Server("a")
    async with cluster(tmp_path, server, Server("b"), checks=ALWAYS) as backend:
        await until(lambda: server.checked > 2)
    assert not backend.alive
    assert not await backend.reachable()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_connection_that_breaks_once_is_made_again(tmp_path: Path) -> None:
    servers = trio()
    async with cluster(tmp_path, *servers) as backend:
        first = await ask(backend, "hello")
        owner = next(server for server in servers if server.name == first)
        owner.broken = 1
        assert await ask(backend, "hello", first, "again") == first
        assert [state.failures for state in backend.status.upstreams] == [0, 0, 0]
        assert len(owner.answered) == 3


async def test_a_server_that_is_down_may_become_busy(tmp_path: Path) -> None:
    servers = trio()
    busy = Reply({"error": {"message": "slow"}}, status=429, headers={"retry-after": "90"})
    async with cluster(tmp_path, *servers) as backend:
        for failure, error in ((FAILING, UnreachableError), (busy, BusyError)):
            for server in servers:
                server.failure = failure
            with pytest.raises(error):
                await ask(backend, "hello")
        assert Health.BUSY in health(backend)
        for server in servers:
            server.failure = None
        assert await ask(backend, "hello") in {"a", "b", "c"}
