"""Shepherd's own servers as one provider, by the APIs of other vendors."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from shepherd.backends.base import Generation, Health
from shepherd.backends.upstreams import UpstreamsBackend, open_upstreams, single_opener
from shepherd.config.paths import Paths
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import ProviderBook
from shepherd.events import FinishReason, ignore_events
from shepherd.messages import Message
from tests.patience import PATIENCE, POLL
from tests.upstreams.asking import asking
from tests.upstreams.chain import program

SLOTS = 4
"""A server answers so many requests at a time."""

CONVERSATIONS, TURNS = 4, 3
CLIENTS = 16
SETTINGS = ("--set", "llamacpp.threads=1", "--set", "llamacpp.context_size=4096")
PATHS = {"anthropic": "", "gemini": "", "ollama": "", "openai-responses": "/v1"}
"""The types of providers, and what follows the address of the server."""

each_kind = pytest.mark.parametrize("kind", PATHS)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with ExitStack() as stack:
        homes = [tmp_path_factory.mktemp("home") for _ in range(2)]
        yield [stack.enter_context(program(home, *SETTINGS))[1] for home in homes]


@asynccontextmanager
async def cluster(kind: str, *urls: str) -> AsyncGenerator[UpstreamsBackend]:
    settings = {
        "type": kind,
        "base_urls": [url + PATHS[kind] for url in urls],
        "api_key": "none",
        "model": "pup",
        "check_seconds": 0.2,
        "affinity_slack": CONVERSATIONS,
    }
    env = {"HOME": "/nonexistent"}
    book = ProviderBook(Paths.from_env(env), env)
    backend = await open_upstreams(make_provider("cluster", settings), single_opener(book))
    try:
        yield backend
    finally:
        await backend.aclose()


async def talk(backend: UpstreamsBackend, topic: str) -> None:
    """A conversation each of whose turns finds the one before in the cache."""
    session, before = asking(), 0
    for turn in range(TURNS):
        session.add(Message.user(f"Tell me more about {topic}, please: part {turn}."))
        generation = await backend.generate_from_session(session, ignore_events, 8)
        session.add(generation.message)
        assert generation.stats.cached_tokens >= before
        before = generation.stats.prompt_tokens


@each_kind
async def test_conversations_stay_with_the_server_that_has_them(kind: str, pair: list[str]) -> None:
    async with cluster(kind, *pair) as backend:
        topics = (f"{kind} {number}" for number in range(CONVERSATIONS))
        await asyncio.gather(*(talk(backend, topic) for topic in topics))
        assert [state.failures for state in backend.status.upstreams] == [0, 0]
        assert min(state.requests for state in backend.status.upstreams) > 0


@each_kind
async def test_a_killed_server_loses_only_what_it_had_begun(
    kind: str, pair: list[str], tmp_path: Path
) -> None:
    with program(tmp_path, *SETTINGS) as (process, url):
        async with cluster(kind, *pair, url) as backend:
            end = asyncio.Event()
            clients = [asyncio.create_task(ask_until(backend, n, end)) for n in range(CLIENTS)]
            async with asyncio.timeout(PATIENCE):
                while backend.status.upstreams[2].running <= SLOTS:
                    await asyncio.sleep(POLL)
                process.kill()
                while backend.status.upstreams[2].health is not Health.DOWN:
                    await asyncio.sleep(POLL)
            end.set()
            generations = [g for answers in await asyncio.gather(*clients) for g in answers]
            states = backend.status.upstreams
    broken = [generation for generation in generations if generation.broken]
    whole = [generation for generation in generations if not generation.broken]
    assert all(generation.finish_reason is FinishReason.STOP for generation in whole)
    assert all(generation.message.content for generation in generations)
    assert states[2].failures >= max(1, len(broken))  # the others went elsewhere
    assert [state.failures for state in states[:2]] == [0, 0]
    assert [state.running for state in states] == [0, 0, 0]


async def ask_until(backend: UpstreamsBackend, number: int, end: asyncio.Event) -> list[Generation]:
    """The answers to one client's questions, at least one."""
    answers: list[Generation] = []
    while not answers or not end.is_set():
        session = asking()
        session.add(Message.user(f"Client {number} asks about number {len(answers)}."))
        answers.append(await backend.generate_from_session(session, ignore_events))
    return answers
